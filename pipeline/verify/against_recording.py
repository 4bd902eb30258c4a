"""Compares recordings of engines with the tables, without the log.

A recording holds neither the connector's notices nor offsets, and does not show what was lost on the way to
the log. So only occupancy and flow are compared, in windows that were over when the recording ended, and as
long as the recording has every batch of an engine session from its beginning. A source without such a window
is compared with nothing; only `left_out` of the findings says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from pipeline.verify.findings import Findings, difference
from pipeline.verify.replica import expected
from pipeline.verify.replica.source import SourceRecount
from pipeline.verify.store import StoredTables
from schemas.events import EventsRecord
from schemas.rows import FlowRow, OccupancyRow
from schemas.settings import Worker

INCOMPLETE = "the recording lacks batches before"
_OTHERS = frozenset({"model", "version", "capacity_blocks", "trust", "trust_since"})

Key = tuple[Any, ...]


def check_recorded(
    records: Iterable[EventsRecord], tables: StoredTables, worker: Worker, findings: Findings
) -> None:
    """Compare every source of these records. Raises StoreUnavailable."""
    sources: dict[tuple[str, int], tuple[SourceRecount, list[OccupancyRow | FlowRow]]] = {}
    for offset, record in enumerate(records):
        key = (record.replica, record.dp_rank)
        if key not in sources:
            sources[key] = _recount(key, worker, findings)
        sources[key][0].apply(offset, record)
        findings.records += 1
    for (replica, dp_rank), (_, rows) in sources.items():
        if rows:
            _compare(rows, tables.rows_of_source(replica, dp_rank, rows[0].window, rows[-1].window), findings)


def _recount(
    key: tuple[str, int], worker: Worker, findings: Findings
) -> tuple[SourceRecount, list[OccupancyRow | FlowRow]]:
    source = SourceRecount(*key, worker)
    rows: list[OccupancyRow | FlowRow] = []

    def closed(window: int) -> None:
        of_window: list[OccupancyRow | FlowRow] = [*expected.occupancy(source, window)]
        of_window += expected.flow(source, window)
        if source.trust.had_all(source.media()).trust == "complete":
            rows.extend(of_window)
        else:
            findings.left_out[INCOMPLETE] += len(of_window)

    source.on_window_closed = closed
    return source, rows


def _compare(
    rows: list[OccupancyRow | FlowRow], found: Iterable[OccupancyRow | FlowRow], findings: Findings
) -> None:
    covered: set[datetime] = {row.window for row in rows}
    wanted = {_key(row): row for row in rows}
    has = {_key(row): row for row in found if row.window in covered}
    for key, row in {**wanted, **has}.items():
        findings.compared[row.TABLE] += 1
        one, other = (None if each is None else _figures(each) for each in (wanted.get(key), has.get(key)))
        if one != other:
            findings.differ(difference(row.TABLE, _named(row), one, other))


def _named(row: OccupancyRow | FlowRow) -> dict[str, Any]:
    """Return the key columns, without the model, which a recording need not have."""
    named = {
        "window": row.window,
        "replica": row.replica,
        "dp_rank": row.dp_rank,
        "medium": row.medium,
        "group_idx": row.group_idx,
    }
    return {**named, "block_size": row.block_size} if isinstance(row, OccupancyRow) else named


def _key(row: OccupancyRow | FlowRow) -> Key:
    return (row.TABLE, *_named(row).values())


def _figures(row: OccupancyRow | FlowRow) -> dict[str, Any]:
    left_out = _OTHERS | _named(row).keys()
    return {column: value for column, value in msgspec.structs.asdict(row).items() if column not in left_out}
