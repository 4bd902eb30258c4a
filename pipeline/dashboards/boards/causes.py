"""Prefill by what would have avoided it: what the boards' charts of it share."""

from __future__ import annotations

from pipeline.dashboards.panel import Panel
from pipeline.dashboards.queries import MAIN_GROUPS, SERIES

CAUSE_COLOURS = {
    "routing": "#3f7fdb",
    "routing or capacity": "#6fa8dc",
    "capacity": "#d9822b",
    "warm-up": "#8f6bd6",
    "receivers only": "#b39ddb",
    "lower tier": "#4db6ac",
    "transferred": "#7fb069",
    "generated": "#c9b458",
    "cold": "#9aa5b1",
    "unknown": "#d1495b",
}
CAUSE_TOKENS = {
    "routing": ("routable_peer_tokens",),
    "routing or capacity": ("peer_and_evicted_tokens",),
    "capacity": ("evicted_tokens", "keepable_elsewhere_tokens"),
    "warm-up": ("cleared_tokens",),
    "receivers only": ("at_receivers_tokens",),
    "lower tier": ("promoted_tokens",),
    "transferred": ("transferred_tokens",),
    "generated": ("generated_tokens",),
    "cold": ("cold_tokens",),
    "unknown": ("unknown_tokens",),
}
"""{what would have saved a fill: the columns of fills that count it}."""
GENERATED = "generated"
NO_PREFILL = ("lower tier", "transferred", GENERATED)
"""Causes of what was filled and not computed for a prompt."""
AVOIDABLE_CAUSES = ("routing", "routing or capacity", "capacity", "warm-up", "receivers only")
AVOIDABLE = " + ".join(f"sum({tokens})" for cause in AVOIDABLE_CAUSES for tokens in CAUSE_TOKENS[cause])
"""Tokens that were filled again although some replica has or had them."""
CAUSES_EXPLAINED = (
    "routing: another replica held the block; capacity: the engine had evicted it within the "
    "horizon; routing or capacity: both; warm-up: a clear or restart took it; receivers only: "
    "only replicas that receive KV hold it or had evicted it; cold: new to the fleet within the "
    "horizon; unknown: the history is incomplete. No prefill: lower tier (it came from there), "
    "transferred (from another engine or a store), generated (decoding completed it); see docs/figures.md."
)


def causes(per: str = "") -> str:
    """Return a column for each cause: its tokens, each sum followed by `per`."""
    return ",".join(
        f"\n    {' + '.join(f'sum({tokens}){per}' for tokens in columns)} AS {_quoted(cause)}"
        for cause, columns in CAUSE_TOKENS.items()
    )


def filled_by_cause(id: str, chosen: str, *, width: int = 12, height: int = 8) -> Panel:
    """Return the chart of the fills of the replicas that the condition `chosen` selects."""
    return Panel(
        id=id,
        title="Fills by avoidable cause",
        description=f"Tokens filled into the GPU cache per second. {CAUSES_EXPLAINED}",
        unit="tokens/s",
        kind="stacked",
        width=width,
        height=height,
        sql=f"""
SELECT time,{causes(" / any(width)")}
FROM fills_series({SERIES})
WHERE {chosen} AND {MAIN_GROUPS}
GROUP BY time
ORDER BY time""",
        colours=CAUSE_COLOURS,
    )


def _quoted(name: str) -> str:
    return name if name.isalpha() else f"`{name}`"
