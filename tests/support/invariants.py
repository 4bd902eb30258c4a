"""What holds of the tables whatever happened, as statements that select the rows which break it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline.verify.fleet.expected import CAUSES

Query = Callable[[str], list[tuple[Any, ...]]]

_SUMS = " OR ".join(
    f"filled_{unit} != {' + '.join(f'{cause}_{unit}' for cause in CAUSES)}" for unit in ("blocks", "tokens")
)
_EVER = "(from = '2000-01-01 00:00:00', to = '2100-01-01 00:00:00')"
INVARIANTS = {
    **{
        f"causes sum to fills ({per})": f"SELECT * FROM {{database}}.fills_{per} FINAL WHERE {_SUMS}"
        for per in ("10s", "1m", "1h")
    },
    "shared ideal >= per-replica ideal >= actual": f"""
        SELECT * FROM {{database}}.hit_potential{_EVER}
        WHERE own_ideal_hit_rate < actual_hit_rate OR ideal_hit_rate < own_ideal_hit_rate
            OR ideal_hit_rate > 1 OR actual_hit_rate < 0""",
    "shares sum to 1": f"""
        SELECT * FROM {{database}}.hit_potential{_EVER}
        WHERE abs(routing_share + capacity_share - routing_and_capacity_share + warm_up_share
                + at_receivers_share + cold_share + unknown_share - 1) > 1e-9
            OR abs(prefill_tokens / filled_tokens + promoted_share + transferred_share + generated_share - 1)
                > 1e-9""",
    "parts are no more than their causes": """
        SELECT * FROM {database}.fills_10s FINAL
        WHERE transferred_again_tokens > transferred_tokens OR peer_at_receivers_tokens > peer_tokens
            OR evicted_at_receivers_tokens > evicted_elsewhere_tokens""",
    "resident <= capacity": """
        SELECT window, replica, dp_rank, sum(blocks) AS resident, max(capacity_blocks) AS capacity
        FROM {database}.occupancy_10s FINAL
        WHERE medium = 'gpu'
        GROUP BY ALL
        HAVING capacity > 0 AND resident > capacity AND max(trust) = 'complete' AND max(group_idx) = 0""",
    # Offload tiers may not say how many tokens a block has: those blocks have owners, and no tokens.
    "each block is held at least once, by as many as say so": """
        SELECT * FROM {database}.redundancy_10s FINAL
        WHERE unique_tokens + received_tokens > physical_tokens
            OR (owners_1 + owners_2 + owners_3 + owners_4_7 + owners_8_up = 0 AND physical_tokens > 0)
            OR (owners_2 + owners_3 + owners_4_7 + owners_8_up = 0
                AND unique_tokens + received_tokens != physical_tokens)
            OR (owners_2 + owners_3 + owners_4_7 + owners_8_up > 0
                AND unique_tokens + received_tokens = physical_tokens AND medium = 'gpu')""",
}
AT_REST = """
    SELECT source.tokens, fleet.tokens FROM
    (
        SELECT sum(last) AS tokens FROM
        (
            SELECT argMax(tokens, window) AS last FROM {database}.occupancy_10s FINAL
            GROUP BY model, replica, dp_rank, medium, group_idx, block_size
        )
    ) AS source
    CROSS JOIN
    (
        SELECT sum(last) AS tokens FROM
        (
            SELECT argMax(physical_tokens, window) AS last FROM {database}.redundancy_10s FINAL
            GROUP BY hash_domain, model, medium, group_idx, shard
        )
    ) AS fleet
    WHERE source.tokens != fleet.tokens"""
"""Once everything was followed: what the fleet holds is what its sources hold, so nothing of a past life."""


def broken(query: Query, database: str, *, at_rest: bool) -> dict[str, list[tuple[Any, ...]]]:
    """Return rows by the invariant that they break."""
    statements = {**INVARIANTS, **({"the fleet holds what its sources hold": AT_REST} if at_rest else {})}
    found = {what: query(statement.format(database=database)) for what, statement in statements.items()}
    return {what: rows for what, rows in found.items() if rows}
