"""Rows of minutes and hours, from ten-second rows, by the rules of docs/tables.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import zip_longest
from typing import Any

from clickhouse_connect.driver.client import Client

from pipeline.verify.fleet.expected import CAUSES
from pipeline.verify.times import start_of_period
from schemas.trust import TRUST_ORDER
from tests.support.rollups.hot_prefixes import PREFIX_SPACE, listed_prefixes

_SOURCE = ("model", "replica", "dp_rank")
_FILLS = ("hash_domain", *_SOURCE, "group_idx")
_CAUSES = tuple(f"{cause}_{unit}" for cause in (*CAUSES, "reannounced") for unit in ("blocks", "tokens"))


@dataclass(frozen=True)
class Family:
    """What becomes of each column of a ten-second table, besides trust."""

    key: tuple[str, ...]
    last: tuple[str, ...] = ()
    """As at the end of the last window."""
    summed: tuple[str, ...] = ()
    largest: tuple[tuple[str, str], ...] = ()
    """(column, column of the ten-second table)."""
    smallest: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    """Lists, summed element by element."""
    summed_over: tuple[str, ...] = ()
    """Columns besides the key. Rows that differ in them count together: their `last` figures are summed."""
    joined: Callable[[list[dict[str, Any]], timedelta], dict[str, Any]] | None = None
    """Makes all columns from the rows of a period of such a length, where they do not follow one by one."""


FAMILIES = {
    "occupancy": Family(
        key=(*_SOURCE, "medium", "group_idx", "block_size"),
        last=("entries", "blocks", "tokens", "covered_blocks", "capacity_blocks", "store_only", "at_least"),
        largest=(("entries_max", "entries"), ("blocks_max", "blocks"), ("tokens_max", "tokens")),
    ),
    "flow": Family(
        key=(*_SOURCE, "medium", "group_idx"),
        summed=(
            "stored_blocks",
            "stored_tokens",
            "filled_blocks",
            "removed_blocks",
            "evicted_blocks",
            "evicted_tokens",
            "cleared_blocks",
            "expired_blocks",
            "reannounced_blocks",
            "unknown_removed_blocks",
        ),
        added=("lifetime_hist",),
    ),
    "stream_health": Family(
        key=_SOURCE,
        last=("incarnation", "last_seq", "last_batch_at", "drift_since"),
        summed=(
            "batches",
            "events",
            "duplicate_batches",
            "gap_batches",
            "replayed_batches",
            "lost_batches",
            "undecodable_events",
            "restarts",
        ),
        largest=(("lag_seconds", "lag_seconds"), ("drift_blocks", "drift_blocks")),
        smallest=("connected",),
    ),
    "fills": Family(
        key=_FILLS,
        summed=(
            "filled_blocks",
            "filled_tokens",
            *_CAUSES,
            "transferred_again_tokens",
            "peer_at_receivers_tokens",
            "evicted_at_receivers_tokens",
        ),
        largest=(("sampled_one_in", "sampled_one_in"),),
        added=("regret_hist",),
        summed_over=("shard",),
    ),
    "redundancy": Family(
        key=("hash_domain", "model", "medium", "group_idx"),
        last=(
            "owners_1",
            "owners_2",
            "owners_3",
            "owners_4_7",
            "owners_8_up",
            "unique_tokens",
            "physical_tokens",
            "received_tokens",
        ),
        largest=(("sampled_one_in", "sampled_one_in"),),
        summed_over=("shard",),
    ),
    "capacity_curve": Family(
        key=_FILLS,
        largest=(("sampled_one_in", "sampled_one_in"),),
        added=("needed_hist",),
        summed_over=("shard",),
    ),
    "hot_prefixes": Family(key=PREFIX_SPACE, joined=listed_prefixes),
}
"""Name that a table and its rollups begin with."""

PERIODS = {"1m": timedelta(minutes=1), "1h": timedelta(hours=1)}

Periods = dict[tuple[Any, ...], dict[str, Any]]
"""(start, key columns) to the other columns."""


def rolled_up(family: Family, length: timedelta, rows: Iterable[dict[str, Any]]) -> Periods:
    """Return what the rows of a minute or hour table should say, given ten-second rows, oldest first."""
    members: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = (start_of_period(row["window"], length), *(row[column] for column in family.key))
        members.setdefault(key, []).append(row)
    if family.joined is not None:
        return {key: family.joined(of_period, length) for key, of_period in members.items()}
    return {key: _joined(family, of_period) for key, of_period in members.items()}


def _joined(family: Family, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """`rows` of one period and key, oldest first."""
    worst = max(rows, key=lambda row: (TRUST_ORDER.index(row["trust"]), row["window"]))
    joined = {column: _last(family, rows, column) for column in family.last}
    joined |= {column: sum(row[column] for row in rows) for column in family.summed}
    joined |= {column: max(row[of] for row in rows) for column, of in family.largest}
    joined |= {column: min(row[column] for row in rows) for column in family.smallest}
    for column in family.added:
        buckets = zip_longest(*(row[column] for row in rows), fillvalue=0)
        joined[column] = [sum(bucket) for bucket in buckets]
    joined |= {column: worst[column] for column in ("trust", "trust_since") if column in worst}
    return joined | {"windows": len(rows)}


def _last(family: Family, rows: list[dict[str, Any]], column: str) -> Any:
    """Return a column at the end of the last window; shards add up, each as it was last in that minute."""
    if not family.summed_over:
        return rows[-1][column]
    minute = start_of_period(rows[-1]["window"], PERIODS["1m"])
    latest = {
        tuple(row[name] for name in family.summed_over): row[column]
        for row in rows
        if row["window"] >= minute
    }
    return sum(latest.values())


def as_periods(family: Family, rows: Iterable[dict[str, Any]]) -> Periods:
    """Return the rows of a minute or hour table in the same form, without the version, which is a clock."""
    names = ("window", *family.key)
    return {
        tuple(row[column] for column in names): {
            column: value for column, value in row.items() if column not in names and column != "version"
        }
        for row in rows
    }


def stored(client: Client, database: str, table: str) -> list[dict[str, Any]]:
    """Return all columns of the rows of a table that count, oldest first."""
    found = client.query(f"SELECT * FROM {database}.{table} FINAL ORDER BY window").named_results()
    return [{name: _aware(value) for name, value in each.items()} for each in found]


def _aware(value: Any) -> Any:
    return value.replace(tzinfo=timezone.utc) if isinstance(value, datetime) else value
