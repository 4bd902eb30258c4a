"""The first thing on the board Fleet: the answer in four cards, and below it what to do."""

from __future__ import annotations

from pipeline.dashboards.boards.causes import AVOIDABLE_CAUSES, NO_PREFILL
from pipeline.dashboards.panel import Panel, Shared, Trend
from pipeline.dashboards.queries import RANGE

BRIEFING = Shared(
    "briefing",
    f"""
SELECT
    part, place, title, figure, detail, change, caveat, model,
    if(length(replicas) = 1, replicas[1], '') AS replica, board
FROM briefing({RANGE}, models = {{model:Array(String)}})
WHERE place <= 7
ORDER BY part, place""",
    ("part", "place", "title", "figure", "detail", "change", "caveat", "model", "replica", "board"),
)


def _part(part: str, shows: dict[str, str]) -> str:
    columns = ", ".join(
        column if column == name else f"{column} AS `{name}`" for name, column in shows.items()
    )
    return f"""
SELECT {columns}
FROM
({BRIEFING.sql}
)
WHERE part = '{part}'
ORDER BY place"""


_ANSWER = {name: name for name in ("title", "figure", "detail", "change")}
_FINDINGS = {
    "#": "place",
    "finding": "title",
    "what to do": "detail",
    "worth": "figure",
    "but": "caveat",
    "model": "model",
    "replica": "replica",
    "shown on": "board",
}

ANSWER = Panel(
    id="fleet-answer",
    title="The answer",
    description="Prefill you could avoid: tokens that some replica held, or had filled before, of all that "
    "did not come from a lower tier or by transfer; an upper bound. Hit rate: as the engines count it, and "
    "at most. Biggest lever: the first finding below that saves prefill; its change is that of the prefill "
    "whose cause it removes. Data: streams known from their first batch on, and data freshness. "
    "Changes are against the preceding range of equal length.",
    unit="tokens",
    kind="answer",
    width=24,
    height=4,
    sql=_part("answer", _ANSWER),
    shared=BRIEFING,
    part="answer",
    shows=_ANSWER,
    trend=Trend("Prefill you could avoid", "fleet-fills", AVOIDABLE_CAUSES, NO_PREFILL),
)

FINDINGS = Panel(
    id="fleet-findings",
    title="What to do first",
    description="At most seven findings, by the GPU-seconds per hour that they save, or by tokens per hour "
    "where a rate is unknown. About: an estimate; at least: a bound for LRU caches; at most: what was lost "
    "for that cause. Two findings may count the same tokens (docs/advice.md).",
    unit="tokens",
    kind="findings",
    width=24,
    height=9,
    sql=_part("finding", _FINDINGS),
    shared=BRIEFING,
    part="finding",
    shows=_FINDINGS,
    empty="Nothing known would save a hundredth of the prefill. Data in The answer says how far that holds.",
)
