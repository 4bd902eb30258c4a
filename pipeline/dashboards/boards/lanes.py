"""Replicas over time, all at once: how full, how often hit, how much filled again; the worst first."""

from __future__ import annotations

from pipeline.dashboards.boards.causes import AVOIDABLE
from pipeline.dashboards.panel import Panel
from pipeline.dashboards.queries import MAIN_GROUPS, MODELS, MOST_LANES, RANGE, whole_windows

_WIDE = 4
"""Points of other charts in one of these charts, which are narrow and have many lanes."""
_SERIES = f"{RANGE}, step = {_WIDE} * {{step:UInt32}}"

_LANES = """
SELECT time, leftPad(toString(number), 4, '0') AS place, replica, part / nullIf(whole, 0) AS value
FROM
(
    SELECT *, dense_rank() OVER (ORDER BY in_all {worst}, replica) AS number
    FROM
    (
        SELECT *, {in_all} AS in_all
        FROM
        ({figures}
        )
        WHERE whole > 0
        WINDOW of_replica AS (PARTITION BY replica)
    )
)
WHERE number <= {most}
ORDER BY time, number"""

_USE = f"""
            SELECT time, replica, sum(entries) AS part, sum(capacity_blocks) AS whole
            FROM held_series({_SERIES})
            WHERE medium = 'gpu' AND capacity_blocks > 0 AND {MODELS}
            GROUP BY time, replica"""
_HITS = f"""
            WITH{whole_windows(f"{_WIDE} * {{step:UInt32}}")}
            SELECT
                toDateTime(intDiv(toUnixTimestamp(scrapes.time), width) * width, 'UTC') AS time,
                replica,
                sum(hit) AS part,
                sum(queried) AS whole
            FROM engine_hits_series({RANGE}) AS scrapes
            WHERE {MODELS}
            GROUP BY time, replica"""
_AVOIDABLE = f"""
            SELECT time, replica, of_causes * ifNull(computed, 1) AS part, whole
            FROM
            (
                SELECT time, replica, {AVOIDABLE} AS of_causes, sum(prefill_tokens) AS whole
                FROM fills_series({_SERIES})
                WHERE {MODELS} AND {MAIN_GROUPS}
                GROUP BY time, replica
            ) AS filled
            LEFT JOIN
            (
                SELECT
                    replica,
                    sum(avoidable_tokens) / nullIf(sum(
                        peer_tokens + peer_and_evicted_tokens + evicted_tokens + evicted_elsewhere_tokens
                            + cleared_tokens
                    ), 0) AS computed
                FROM hit_potential_series({RANGE})
                WHERE {MODELS}
                GROUP BY replica
            ) AS bounds USING (replica)"""
_RATIO = "sum(part) OVER of_replica / sum(whole) OVER of_replica"


def _lanes(
    id: str, title: str, description: str, figures: str, *, in_all: str = _RATIO, low_is_bad: bool = False
) -> Panel:
    """Return a panel of shares, `part` of `whole`; lanes are sorted by `in_all`, a figure of the range."""
    return Panel(
        id=id,
        title=title,
        description=f"{description} Worst on top, {MOST_LANES} at most; stronger is worse.",
        unit="share",
        kind="lanes",
        width=8,
        height=12,
        named_by="replica",
        names="replica",
        low_is_bad=low_is_bad,
        sql=_LANES.format(
            figures=figures, in_all=in_all, worst="ASC" if low_is_bad else "DESC", most=MOST_LANES
        ),
    )


USE = _lanes(
    "fleet-lanes-use",
    "GPU cache in use, by replica",
    "Cached entries as a share of the capacity that the engine reports; above 100 %: removals are missing "
    "(drift).",
    _USE,
)
HITS = _lanes(
    "fleet-lanes-hits",
    "Hit rate, by replica",
    "Hits over queries, as the engines whose metrics kvlens reads count them.",
    _HITS,
    low_is_bad=True,
)
FILLED_AGAIN = _lanes(
    "fleet-lanes-avoidable",
    "Prefill you could avoid, by replica",
    "The share of the prefill that some replica held, or had filled before: an upper bound, and over the "
    "range no more than the engine counts as computed. Worst by tokens, as in the table Replicas.",
    _AVOIDABLE,
    in_all="sum(part) OVER of_replica",
)
