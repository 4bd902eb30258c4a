"""Pieces of SQL that many panels share."""

from __future__ import annotations

from pipeline.dashboards.panel import Choice

MODELS = "(empty({model:Array(String)}) OR has({model:Array(String)}, model))"
REPLICAS = "(empty({replica:Array(String)}) OR has({replica:Array(String)}, replica))"
ROLE = "if(role = '', 'not known', role)"
"""A role as a viewer chooses it, where a row of `replica_roles` or `sources` has it."""
ROLES = f"""(empty({{role:Array(String)}}) OR has((
    SELECT groupArray(replica) FROM replica_roles WHERE has({{role:Array(String)}}, {ROLE})
), replica))"""
CHOSEN = f"{MODELS} AND {REPLICAS} AND {ROLES}"
CHOICES: dict[Choice, str] = {
    "model": "SELECT DISTINCT model FROM sources ORDER BY model",
    "role": f"SELECT DISTINCT {ROLE} AS shown FROM replica_roles ORDER BY shown",
    "replica": f"SELECT DISTINCT replica FROM sources WHERE {MODELS} ORDER BY replica",
}
"""What there is to choose from."""

RANGE = "from = toUnixTimestamp({from:DateTime('UTC')}), to = toUnixTimestamp({to:DateTime('UTC')})"
"""Arguments of views, in seconds: a clock would not mean the same moment in every session."""
SERIES = f"{RANGE}, step = {{step:UInt32}}"
"""Arguments of the views `*_series`: columns `time` and `width` come with them."""
LATEST = "from = toUnixTimestamp({to:DateTime('UTC')}) - 60, to = toUnixTimestamp({to:DateTime('UTC')})"
"""Arguments of the views of ten-second tables, for the last minute of the range."""
FINEST = f"SELECT seconds FROM finest({RANGE})"
"""The length of the windows from which the views `*_series` read a range."""
AT_THE_END = "to = toUnixTimestamp({to:DateTime('UTC')})"

MAIN_GROUPS = f"""(hash_domain, replica, group_idx) IN
(
    SELECT main.1, main.2, main.3
    FROM
    (
        SELECT arrayJoin((
            SELECT groupArray((hash_domain, replica, group_idx))
            FROM
            (
                SELECT hash_domain, replica, argMax(group_idx, (tokens, -toInt32(group_idx))) AS group_idx
                FROM
                (
                    SELECT hash_domain, replica, group_idx, sum(filled_tokens) AS tokens
                    FROM fills_series({SERIES})
                    GROUP BY hash_domain, replica, group_idx
                )
                GROUP BY hash_domain, replica
            )
        )) AS main
    )
)"""
"""The condition for the KV-cache group of a replica that filled most tokens, the first of equal ones: the
others hold the same tokens once more.

As one value: the shards of a cluster would get the subquery of IN as it is, without a view's arguments."""


def whole_windows(step: str) -> str:
    """Return the entries of a WITH clause that make `width` of a step: up to whole windows of the range."""
    return f"""
    ({FINEST}) AS window_seconds,
    intDiv({step} + window_seconds - 1, window_seconds) * window_seconds AS width"""


def tokens_by_medium(chosen: str) -> str:
    """Return a query of the resident tokens at each point of time, by medium.

    A medium is called `≤ gpu` where any of it is an upper bound, `≥ gpu` where any is a lower bound, `≈ gpu`
    where both are so, and `cpu, as far as known` where some engines do not report how many tokens a block
    has; where none does, its tokens are NULL.
    """
    return f"""
SELECT time, concat(
        transform(
            max(bounded) OVER of_medium + 2 * max(missing) OVER of_medium, [1, 2, 3], ['≤ ', '≥ ', '≈ '], ''
        ),
        part.medium,
        if(max(unsaid) OVER of_medium AND max(isNotNull(part.tokens)) OVER of_medium, ', as far as known', '')
    ) AS medium, part.tokens AS tokens
FROM
(
    SELECT time, medium, sum(of_rank.tokens) / uniqExact(window) AS tokens, max(is_bound) AS bounded,
        max(tokens_at_least AND isNotNull(of_rank.tokens)) AS missing, max(isNull(of_rank.tokens)) AS unsaid
    FROM held_series({SERIES}) AS of_rank
    WHERE {chosen}
    GROUP BY time, medium
) AS part
WINDOW of_medium AS (PARTITION BY part.medium)
ORDER BY time, medium"""


MOST_LANES = 200
"""Most lanes of a panel; further replicas are not shown."""
TOP = 20
"""Series or rows of a chart that names models or replicas; the rest are added up as `others`."""


def with_top(column: str, rows: str, chosen: str, figure: str) -> str:
    """Return a WITH clause in which `top` has the values of `column` with the largest figures."""
    return f"""WITH top AS
(
    SELECT {column}
    FROM {rows}
    WHERE {chosen}
    GROUP BY {column}
    ORDER BY {figure} DESC, {column}
    LIMIT {TOP}
)"""


def or_others(column: str) -> str:
    """Return a column, or `others` for what is not among `top`.

    Do not give it the name of the column as an alias: conditions would then be about the result.
    """
    return f"if({column} IN top, {column}, 'others')"


def rates_by_model(view: str, column: str, name: str, chosen: str) -> str:
    """Return a query of the sums of `column` per second, as `name`, for each point of time and model."""
    rows = f"{view}({SERIES})"
    return f"""
{with_top("model", rows, chosen, f"sum({column})")}
SELECT time, {or_others("model")} AS series, sum({column}) / any(width) AS {name}
FROM {rows}
WHERE {chosen}
GROUP BY time, series
ORDER BY time, series"""
