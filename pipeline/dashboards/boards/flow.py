"""Where the tokens of prompts came from, as one picture whose parts add up."""

from __future__ import annotations

from pipeline.dashboards.boards.causes import CAUSE_COLOURS
from pipeline.dashboards.panel import Panel
from pipeline.dashboards.queries import MODELS, RANGE

ASKED = "asked for"
PREFILL = "prefill"
_BROUGHT = {
    "found on the GPU": ("ifNull(hit_tokens, 0)", "#2f9e6e"),
    "lower tier": ("promoted_tokens", CAUSE_COLOURS["lower tier"]),
    "transferred": ("transferred_tokens", CAUSE_COLOURS["transferred"]),
    PREFILL: ("prefill_tokens", "#6c7fa8"),
}
_FILLED = {
    "another replica had it": ("peer_tokens", CAUSE_COLOURS["routing"]),
    "evicted here, another had it": ("peer_and_evicted_tokens", CAUSE_COLOURS["routing or capacity"]),
    "evicted here": ("evicted_tokens", CAUSE_COLOURS["capacity"]),
    "evicted elsewhere": ("evicted_elsewhere_tokens", "#ecc195"),
    "restart or clear": ("cleared_tokens", CAUSE_COLOURS["warm-up"]),
    "new": ("cold_tokens", CAUSE_COLOURS["cold"]),
    "unknown": ("unknown_tokens", CAUSE_COLOURS["unknown"]),
}
"""{part: (its tokens in `hit_potential`, its colour)}."""


def _links() -> str:
    return ",\n    ".join(
        f"('{whole}', '{part}', toUInt64(sum({tokens})))"
        for whole, parts in ((ASKED, _BROUGHT), (PREFILL, _FILLED))
        for part, (tokens, _) in parts.items()
    )


FLOW = Panel(
    id="fleet-flow",
    title="Where the tokens of prompts came from",
    description="All tokens that were found on the GPU, as engines whose metrics kvlens reads count them, "
    "or filled: from a lower tier, by transfer, or computed (prefill), and prefill by why it was needed. "
    "Prefill includes what was generated. You could avoid, at most, what another replica had, was evicted or "
    "was lost by a restart or clear. docs/figures.md says how exact each part is.",
    unit="tokens",
    kind="flow",
    width=24,
    height=9,
    sql=f"""
SELECT link.1 AS `from`, link.2 AS `into`, link.3 AS tokens
FROM
(
    SELECT [
    {_links()}
    ] AS links
    FROM hit_potential_series({RANGE})
    WHERE {MODELS}
)
ARRAY JOIN links AS link
WHERE tokens > 0""",
    colours={part: colour for parts in (_BROUGHT, _FILLED) for part, (_, colour) in parts.items()},
)
