"""Compares recordings of engines with the tables, without the log.

A recording holds neither the connector's notices nor offsets, and does not show what was lost on the way to
the log. So only occupancy and flow are compared, in windows that were over when the recording ended, and as
long as the recording has every batch of an engine session from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from pipeline.verify.findings import Difference, Findings
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
    has = {_key(row): row for row in found}
    covered: set[datetime] = {row.window for row in rows}
    wanted = {_key(row): row for row in rows}
    for key, row in wanted.items():
        findings.compared[row.TABLE] += 1
        other = has.get(key)
        figures, theirs = _figures(row), {} if other is None else _figures(other)
        columns = [column for column in figures if figures[column] != theirs.get(column)]
        if columns:
            findings.differ(
                Difference(
                    row.TABLE,
                    _named(row),
                    "missing" if other is None else "differs",
                    {column: figures[column] for column in columns},
                    {column: theirs[column] for column in columns if column in theirs},
                )
            )
    for key, row in has.items():
        if key not in wanted and row.window in covered:
            findings.compared[row.TABLE] += 1
            findings.differ(Difference(row.TABLE, _named(row), "unexpected", {}, _figures(row)))


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
