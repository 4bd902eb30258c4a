"""The statement for each family of metrics: sums by model, which can be added up further."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.dashboards.queries import MAIN_GROUPS, RANGE, SERIES
from pipeline.fleet.causes import FILL_CAUSES

COLUMN_OF_CAUSE = {cause: f"{cause}_tokens" for cause in FILL_CAUSES}
COLUMN_OF_CAUSE |= {
    "peer": "routable_peer_tokens",
    "evicted_elsewhere": "keepable_elsewhere_tokens",
    "at_receivers": "at_receivers_tokens",
}
"""{cause: its column of fills_series}: all causes of what was filled, so not of what was announced again."""


class Family(NamedTuple):
    """The statement of a family of metrics, and which of its columns are labels."""

    name: str
    sql: str
    labels: int
    """The first columns, this many, are labels, beginning with the model; the others are figures."""


NEWEST = Family(
    "newest",
    """
SELECT model, toUnixTimestamp(max(window)) AS newest
FROM stream_health_10s
WHERE window >= {from:DateTime('UTC')} AND window <= {to:DateTime('UTC')}
    AND toStartOfHour(window) >= toStartOfHour({from:DateTime('UTC')})
    AND toStartOfHour(window) <= {to:DateTime('UTC')}
GROUP BY model""",
    1,
)
STREAMS = Family(
    "streams",
    f"""
SELECT model, toString(last) AS trust, count() AS streams
FROM
(
    SELECT model, replica, dp_rank, argMax(trust, window) AS last
    FROM stream_health_series({SERIES})
    GROUP BY model, replica, dp_rank
)
GROUP BY model, trust""",
    2,
)
FILLS = Family(
    "fills",
    f"""
SELECT model, {", ".join(f"sum({tokens}) AS {cause}" for cause, tokens in COLUMN_OF_CAUSE.items())}
FROM fills_series({SERIES})
WHERE {MAIN_GROUPS}
GROUP BY model""",
    1,
)
HITS = Family(
    "hits",
    f"""
SELECT
    model,
    toFloat64(sum(hit_tokens)) AS actual,
    sum(own_ideal_hit_rate * queried_tokens) AS own_ideal,
    sum(ideal_hit_rate * queried_tokens) AS ideal,
    toFloat64(sum(queried_tokens)) AS queried
FROM hit_potential_series({RANGE})
WHERE queried_tokens > 0
GROUP BY model""",
    1,
)
REPLICAS = Family(
    "replicas",
    f"""
SELECT potential.model AS model, potential.replica AS replica, any(roles.role) AS role,
    sum(potential.avoidable_tokens) AS avoidable
FROM hit_potential_series({RANGE}) AS potential
LEFT JOIN replica_roles AS roles ON roles.model = potential.model AND roles.replica = potential.replica
GROUP BY model, replica""",
    3,
)
_AT_THE_END = f"""
    SELECT *
    FROM held_series({SERIES})
    ORDER BY window DESC
    LIMIT 1 BY model, replica, dp_rank, medium"""
TOKENS = Family(
    "tokens",
    f"""
SELECT model, medium, sum(of_rank.tokens) AS tokens
FROM
({_AT_THE_END}
) AS of_rank
GROUP BY model, medium""",
    2,
)
BLOCKS = Family(
    "blocks",
    f"""
SELECT model, sum(of_rank.entries) AS entries, sum(of_rank.capacity_blocks) AS capacity
FROM
({_AT_THE_END}
) AS of_rank
WHERE medium = 'gpu' AND capacity_blocks > 0
GROUP BY model""",
    1,
)
COSTS = Family(
    "costs",
    f"""
SELECT model, toString(kind) AS kind, cause, currency, toString(rate_basis) AS basis,
    sum(part.gpu_seconds) AS gpu_seconds, sum(part.cost) AS cost,
    sum(part.tokens_without_rate) AS tokens_without_rate
FROM prefill_costs({RANGE}) AS part
WHERE part.tokens > 0
GROUP BY model, kind, cause, currency, basis""",
    5,
)
ADVICE = Family(
    "advice",
    f"""
SELECT model, kind, rate_basis AS basis,
    sum(found.tokens_per_hour) AS tokens, sum(found.gpu_seconds_per_hour) AS gpu_seconds
FROM advice({RANGE}) AS found
GROUP BY model, kind, basis""",
    3,
)
"""The basis is `unknown` where GPU-seconds are missing, so no sum leaves out any."""
FAMILIES = (STREAMS, FILLS, HITS, REPLICAS, TOKENS, BLOCKS, COSTS, ADVICE)
