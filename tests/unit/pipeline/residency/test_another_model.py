"""A replica that serves another model: the rows of each model have what is its own."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timezone
from typing import Any

import pytest
from msgspec.structs import replace

from pipeline.residency.partition import PartitionState
from pipeline.verify.findings import Findings
from pipeline.verify.keys import RowKey, key_of
from pipeline.verify.replica import expected
from pipeline.verify.replica.check import SourceCheck
from pipeline.verify.replica.source import SourceRecount
from schemas.events import Closed, EngineCounters, EventsRecord, Gap, Stored
from schemas.rows import FlowRow, OccupancyRow, StreamHealthRow
from schemas.settings import Worker
from tests.support.inputs.event_records import batch, notice, opened, record
from tests.support.inputs.packed import packed

START = 1_800_000_000.0
COUNTERS = EngineCounters(capacity_blocks=4, block_size=16)


def of(model: str, life: int, *batches: Any) -> EventsRecord:
    return replace(record(*batches, life=life, domain=f"{model}/h/t"), model=model)


def log(*end: EventsRecord) -> list[EventsRecord]:
    """Return the log of a replica that drifts, loses a batch, and serves `b` within the same window."""
    return [
        of("a", 1, opened(START), batch(0, START + 1, Stored(packed(1, 2, 3), 16))),
        of("a", 1, notice(START + 2, COUNTERS), notice(START + 2, Gap(1, 1, "replay_holes"))),
        of("a", 1, batch(2, START + 3, Stored(packed(4, 5), 16))),
        *end,
        of("b", 2, opened(START + 4), batch(0, START + 5, Stored(packed(6), 16))),
        of("b", 2, batch(1, START + 25, Stored(packed(7), 16))),
    ]


LOGS = {
    "restarted": log(),
    "removed": log(of("a", 1, notice(START + 4, Closed("removed")))),
    "idle": log(of("a", 1, notice(START + 4, Closed("silent"))), of("b", 2)),
}


def rows(records: list[EventsRecord], cuts: Collection[int]) -> dict[RowKey, Any]:
    """Return what tables have in the end, if cuts are made behind these records."""
    state, found = PartitionState(0, Worker(idle_carry_seconds=0.0), shards=1), dict[RowKey, Any]()
    for offset, one in enumerate(records):
        state.apply(offset, one)
        if offset in cuts:
            for row in state.cut(START + 25).rows:
                assert row.version >= getattr(found.get(key_of(row)), "version", 0)
                found[key_of(row)] = row
    return found


def recounted(records: list[EventsRecord]) -> dict[RowKey, Any]:
    source, found = SourceRecount("r", 0, Worker()), dict[RowKey, Any]()

    def add(_window: int) -> None:
        found.update({key_of(row): row for row in expected.open_window(source)})

    source.on_window_closed = add
    for offset, one in enumerate(records):
        source.apply(offset, one)
    add(0)
    return found


@pytest.mark.parametrize("name", LOGS)
def test_the_window_in_which_the_model_changes_is_split(name: str) -> None:
    records = LOGS[name]
    every = range(len(records))
    tables = rows(records, every)
    for cuts in ({len(records) - 1}, {0, len(records) - 1}, {2, 3, len(records) - 1}):
        assert rows(records, cuts) == tables
    recount = recounted(records)
    assert {key: tables[key] for key in recount} == recount
    flow = [row for row in tables.values() if isinstance(row, FlowRow)]
    assert [(row.model, row.stored_blocks, row.cleared_blocks) for row in flow] == [
        ("a", 5, 5),
        ("b", 1, 0),
        ("b", 1, 0),
    ]
    held = [row for row in tables.values() if isinstance(row, OccupancyRow)]
    assert [(row.model, row.blocks, row.capacity_blocks) for row in held[:2]] == [("a", 0, 4), ("b", 1, 0)]
    health = [row for row in tables.values() if isinstance(row, StreamHealthRow)]
    assert [(row.model, row.batches, row.lost_batches, row.trust) for row in health[:2]] == [
        ("a", 2, 1, "degraded"),
        ("b", 1, 0, "complete"),
    ]


def test_rows_carried_for_a_model_show_its_end() -> None:
    before, later, ahead = log()[:3], START + 60, START + 75
    records = [*before, of("b", 2, opened(START + 100), batch(0, START + 101, Stored(packed(6), 16)))]
    state, found = PartitionState(0, Worker(), shards=1), dict[RowKey, Any]()
    for offset, one in enumerate(records):
        state.apply(offset, one)
        for now in (later, ahead) if offset == 2 else (START + 102,):
            found |= {key_of(row): row for row in state.cut(now).rows}
    of_a = [row for row in found.values() if isinstance(row, OccupancyRow) and row.model == "a"]
    assert len(of_a) > 1
    assert {row.blocks for row in of_a} == {0}

    findings = Findings()
    check = SourceCheck(
        ("r", 0),
        Worker(),
        [*found.values()],
        findings,
        committed=len(records),
        whole=True,
        oldest=datetime(2020, 1, 1, tzinfo=timezone.utc),
    )
    for offset, one in enumerate(records):
        check.apply(offset, one)
    check.finish(0, len(records))
    assert findings.kept == []
    assert findings.compared[OccupancyRow.TABLE] == len(of_a) + 1
