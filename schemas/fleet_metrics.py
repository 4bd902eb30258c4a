"""The fleet's figures as metrics."""

from __future__ import annotations

from schemas.metric_kinds import Figure

MEDIA = frozenset({"gpu", "cpu", "disk", "storage", "fs", "obj", "external"})
"""Media that figures of the fleet name; the rest are `other`."""


class Fleet:
    """The fleet's figures, as `kvlens serve` exports them: of the range that ended at `range_end`."""

    range_end = Figure(
        "kvlens_fleet_range_end_timestamp_seconds",
        "End of the range that all figures are of: a whole minute, by the engines' clocks.",
        unit="s",
    )
    range_length = Figure("kvlens_fleet_range_seconds", "Length of the range.", unit="s")
    newest = Figure(
        "kvlens_fleet_newest_window_timestamp_seconds",
        "Start of the newest window in the tables. Left out once it is an hour old.",
        ("model",),
        unit="s",
    )
    answered = Figure(
        "kvlens_fleet_family_answered",
        "1 if ClickHouse answered for these figures; 0: they are missing on the page.",
        ("family",),
        unit="",
    )
    folded = Figure(
        "kvlens_fleet_folded_series",
        "Models beyond 50, or replicas beyond 200, that are added up as `others`.",
        ("label",),
        unit="{series}",
    )
    streams = Figure(
        "kvlens_fleet_streams",
        "Event streams by trust at the end of the range: complete, partial or degraded.",
        ("model", "trust"),
        unit="{stream}",
    )
    filled = Figure(
        "kvlens_fleet_filled_tokens_per_second",
        "Tokens filled into GPU caches, by cause. All but promoted, transferred and generated are prefill; "
        "avoidable are peer, peer_and_evicted, evicted, evicted_elsewhere, at_receivers and cleared "
        "(docs/figures.md).",
        ("model", "cause"),
        unit="{token}/s",
    )
    replica_avoidable = Figure(
        "kvlens_fleet_replica_avoidable_prefill_tokens_per_second",
        "The avoidable prefill of the top 200 replicas by that; `others` of each model together.",
        ("model", "replica", "role"),
        unit="{token}/s",
    )
    hit_ratio = Figure(
        "kvlens_fleet_hit_ratio",
        "Tokens found of those looked up, of scraped engines: actual (by their counters), own_ideal (at "
        "most, with more cache), ideal (at most, with better routing, too).",
        ("model", "kind"),
        unit="1",
    )
    cached = Figure(
        "kvlens_fleet_cached_tokens",
        "Distinct tokens that each rank holds, no more than it has room for, at the end of the range; "
        "missing where engines do not say how many tokens a block has.",
        ("model", "medium"),
        unit="{token}",
    )
    gpu_blocks = Figure(
        "kvlens_fleet_gpu_cache_blocks",
        "Physical GPU blocks of replicas of known capacity, at the end of the range.",
        ("model",),
        unit="{block}",
    )
    gpu_capacity = Figure(
        "kvlens_fleet_gpu_cache_capacity_blocks", "GPU blocks that they have.", ("model",), unit="{block}"
    )
    gpus = Figure(
        "kvlens_fleet_prefill_gpus",
        "GPUs busy with avoidable prefill (kind lost), or that caches saved (kind saved), by cause; "
        "rate_basis: whether the time of a token is measured or assumed.",
        ("model", "kind", "cause", "rate_basis"),
        unit="{gpu}",
    )
    cost = Figure(
        "kvlens_fleet_prefill_cost_per_hour",
        "What they cost in an hour, in the currency of the settings.",
        ("model", "kind", "cause", "rate_basis", "currency"),
        unit="{currency}/h",
    )
    without_rate = Figure(
        "kvlens_fleet_tokens_without_rate_per_second",
        "Tokens lost or saved that the GPUs leave out, as the time of a token is unknown.",
        ("model", "kind"),
        unit="{token}/s",
    )
    advice = Figure(
        "kvlens_fleet_advice_tokens_per_hour",
        "What the seven findings that are worth most would save, by kind (docs/advice.md). `hashes` and "
        "`streams` save nothing by themselves: their tokens have no known cause.",
        ("model", "kind"),
        unit="{token}/h",
    )
    advice_gpus = Figure(
        "kvlens_fleet_advice_gpu_seconds_per_hour",
        "What they are worth in GPU-seconds; missing where the time of a token is unknown.",
        ("model", "kind", "rate_basis"),
        unit="s/h",
    )
