"""What the fleet agent believes resident is what the replica agent does, across clears and restarts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from pipeline.fleet.kernel.counts import USED_PAIRS
from pipeline.fleet.state import FleetState
from pipeline.reading.windows import bounded_by_log
from pipeline.residency.partition import PartitionState
from schemas.events import Batch, EventsRecord, SourceStatus, Stored
from schemas.residency import ResidencyRecord
from schemas.rows import FillsRow, HashGroupRow, RedundancyRow
from schemas.settings import Fleet, Worker
from tests.support.inputs.generated_logs import shared_log

START = 1_700_000_000.0
SHARDS = 4


@pytest.mark.parametrize("seed", range(5))
def test_redundancy_is_the_sum_of_occupancy(seed: int) -> None:
    replica = PartitionState(0, Worker(max_clock_behind_seconds=1e12), shards=SHARDS)
    fleet = [FleetState(shard, Fleet(), carry_seconds=0.0) for shard in range(SHARDS)]
    lives: dict[str, int] = {}
    offsets = [0] * SHARDS
    for offset, record in enumerate(shared_log(seed, replicas=5, rounds=30, began=START)):
        replica.apply(offset, record)
        lives[record.replica] = record.incarnation
        if offset % 7 and offset != 149:
            continue
        cut = replica.cut(START)
        for shard, _, value in cut.residency:
            fleet[shard].apply(offsets[shard], msgspec.msgpack.decode(value, type=ResidencyRecord))
            offsets[shard] += 2
    resident = {
        source.head.replica: sum(part.blocks for part in source.occupancy() if part.medium == "gpu")
        for source in replica.sources.values()
    }
    rows = [row for state in fleet for row in state.cut(0.0).rows]
    last = {row.shard: row for row in rows if isinstance(row, RedundancyRow)}
    assert sum(row.physical_tokens for row in last.values()) == 16 * sum(resident.values())
    held = dict.fromkeys(resident, 0)
    for state in fleet:
        pairs = state.index.pairs[(state.index.pairs["key"] != 0) & (state.index.pairs["media"] & 1 != 0)]
        assert len(state.index.pairs[state.index.pairs["key"] != 0]) == state.index.clock.counters[USED_PAIRS]
        for source in state.names.sources.by_name.values():
            held[source.replica] += int((pairs["source"] == source.number).sum())
            assert source.incarnation == lives[source.replica]
    assert held == resident, "nothing of a past life, and nothing missing"
    filled = sum(
        flow.filled_blocks
        for source in replica.sources.values()
        for flow in source.pools.flow_since_start().values()
    )
    fills = sum(row.filled_blocks for row in rows if isinstance(row, FillsRow))
    assert filled == fills


def test_every_group_of_the_next_life_counts_after_the_end_of_the_last() -> None:
    """A life ends with its window, so later than the first fills of one that began in the same window."""
    replica = PartitionState(0, Worker(max_clock_behind_seconds=1e12), shards=1)
    fleet = FleetState(0, Fleet(), carry_seconds=0.0)
    block = bytes(7) + b"\1"
    stored = [Stored(block, 16, 16, group_idx=group) for group in (0, 1)]
    for life in (1, 2):
        batch = Batch(0, START + life, START + life, stored, engine_events=2)
        replica.apply(life - 1, EventsRecord("r", "m", "d", 0, life, [batch], 0, 0))
    for _, _, value in replica.cut(START).residency:
        fleet.apply(0, msgspec.msgpack.decode(value, type=ResidencyRecord))
    rows = [row for row in fleet.cut(0.0).rows if isinstance(row, RedundancyRow)]
    assert {row.group_idx: row.owners_1 for row in rows} == {0: 1, 1: 1}


YEAR_2090 = 3_786_912_000.0


def ahead(life: int, seq: int) -> EventsRecord:
    """A record of a source whose connector's clock shows 2090."""
    stored = Stored((seq + 1).to_bytes(8, "big"), 16, 16)
    batches = [
        Batch(None, YEAR_2090 + seq, YEAR_2090 + seq, [SourceStatus(connected=True)]),
        Batch(seq, YEAR_2090 + seq, YEAR_2090 + seq, [stored], engine_events=1),
    ]
    return EventsRecord("ahead", "m", "m/ahead", 0, life, batches, seq, seq)


def rows_of_log(log: Sequence[tuple[EventsRecord, float]], cut_after: set[int]) -> list[Any]:
    """All rows of the fleet agent, of records and the log's time of each."""
    replica = PartitionState(0, Worker(max_clock_behind_seconds=1e12), shards=1)
    fleet = FleetState(0, Fleet(horizon_seconds=60.0), carry_seconds=0.0)
    rows: list[Any] = []
    for offset, (record, written_at) in enumerate(log):
        replica.apply(offset, bounded_by_log(record, written_at, ahead=5.0))
        if id(record) in cut_after:
            for _, _, value in replica.cut(START).residency:
                fleet.apply(fleet.next_offset, msgspec.msgpack.decode(value, type=ResidencyRecord))
            rows += fleet.cut(0.0).rows
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_a_clock_that_is_ahead_moves_no_figure_of_others(seed: int) -> None:
    honest = shared_log(seed, replicas=3, rounds=60, began=START)
    log = [(record, record.batches[-1].received_at) for record in honest]
    cut_after = {id(record) for record in honest[4::5]}
    alone = rows_of_log(log, cut_after)
    troubled: list[tuple[EventsRecord, float]] = []
    for seq, (record, written_at) in enumerate(log):
        troubled += [(ahead(1, seq), written_at), (record, written_at)]
    beside = rows_of_log(troubled, cut_after)
    of_others = [row for row in beside if row.hash_domain != "m/ahead"]
    assert of_others == alone
    assert len(of_others) < len(beside)
    assert sum(row.evicted_blocks for row in alone if isinstance(row, FillsRow)) > 100, "losses count"
    last = max(row.window for row in alone if not isinstance(row, HashGroupRow))
    assert max(row.window for row in beside if not isinstance(row, HashGroupRow)) == last
