"""Restarts, clears and losses, which boards mark on their charts."""

from __future__ import annotations

from pipeline.dashboards.panel import Annotation
from pipeline.dashboards.queries import AT_THE_END, SERIES

NAMED = """concat(
        arrayStringConcat(arraySlice(arraySort(groupUniqArray(replica)), 1, 3), ', '),
        if(uniqExact(replica) > 3, concat(' and ', toString(uniqExact(replica) - 3), ' more'), '')
    )"""
"""The replicas of a point of time, the first three by name; the board Replica shows their ranks."""


def restarts(id: str, chosen: str) -> Annotation:
    """Return annotations about the streams that the condition `chosen` selects."""
    return Annotation(
        id=id,
        title="Restarts, clears and lost events",
        sql=f"""
SELECT min(window) AS time, concat({NAMED}, ' restarted') AS text
FROM stream_health_series({SERIES})
WHERE restarts > 0 AND {chosen}
GROUP BY stream_health_series.time
UNION ALL
SELECT min(window) AS time, concat('events of ', {NAMED}, ' were lost') AS text
FROM stream_health_series({SERIES})
WHERE lost_batches + undecodable_events > 0 AND {chosen}
GROUP BY stream_health_series.time
UNION ALL
SELECT
    incomplete_until AS time,
    concat('complete again: ', {NAMED}, '; causes there may be unknown until ',
        formatDateTime(max(unknown_until), '%H:%i UTC')) AS text
FROM lost_history({AT_THE_END})
WHERE incomplete_until >= {{from:DateTime('UTC')}} AND {chosen}
GROUP BY incomplete_until
UNION ALL
SELECT min(window) AS time, concat({NAMED}, ' lost ', toString(sum(cleared_blocks)), ' blocks') AS text
FROM flow_series({SERIES})
WHERE cleared_blocks > 0 AND {chosen}
GROUP BY flow_series.time""",
    )
