"""What the fleet agent believes resident is what the replica agent does, across clears and restarts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pipeline.fleet.kernel.counts import USED_PAIRS
from pipeline.fleet.state import FleetState
from pipeline.reading.windows import bounded_by_log
from schemas.events import EventsRecord, SourceStatus, Stored
from schemas.fleet_rows import FillsRow, RedundancyRow
from schemas.setting_rows import HashGroupRow
from schemas.settings import Fleet, Worker
from tests.support.inputs.event_records import batch, notice, record
from tests.support.inputs.generated_logs import shared_log
from tests.support.inputs.packed import packed
from tests.support.replica_agent import ReplicaAgent, residency_of

START = 1_700_000_000.0
SHARDS = 4
WORKER = Worker(max_clock_behind_seconds=1e12)


@pytest.mark.parametrize("seed", range(5))
def test_redundancy_is_the_sum_of_occupancy(seed: int) -> None:
    replica = ReplicaAgent(WORKER, shards=SHARDS)
    fleet = [FleetState(shard, Fleet(), carry_seconds=0.0) for shard in range(SHARDS)]
    lives: dict[str, int] = {}
    offsets = [0] * SHARDS
    for offset, said in enumerate(shared_log(seed, replicas=5, rounds=30, began=START)):
        replica.apply(said)
        lives[said.replica] = said.incarnation
        if offset % 7 and offset != 149:
            continue
        for residency in residency_of(replica.cut(START)):
            fleet[residency.shard].apply(offsets[residency.shard], residency)
            offsets[residency.shard] += 2
    resident = {
        source.head.replica: sum(part.blocks for part in source.occupancy() if part.medium == "gpu")
        for source in replica.state.sources.values()
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
        flow.filled_blocks for name, _ in replica.state.sources for flow in replica.flow(name).values()
    )
    fills = sum(row.filled_blocks for row in rows if isinstance(row, FillsRow))
    assert filled == fills


def test_every_group_of_the_next_life_counts_after_the_end_of_the_last() -> None:
    """A life ends with its window, so later than the first fills of one that began in the same window."""
    replica, fleet = ReplicaAgent(WORKER), FleetState(0, Fleet(), carry_seconds=0.0)
    stored = [Stored(packed(1), 16, 16, group_idx=group) for group in (0, 1)]
    replica.apply(*(record(batch(0, START + life, *stored), life=life) for life in (1, 2)))
    for residency in residency_of(replica.cut(START)):
        fleet.apply(0, residency)
    rows = [row for row in fleet.cut(0.0).rows if isinstance(row, RedundancyRow)]
    assert {row.group_idx: row.owners_1 for row in rows} == {0: 1, 1: 1}


YEAR_2090 = 3_786_912_000.0


def ahead(life: int, seq: int) -> EventsRecord:
    """A record of a source whose connector's clock shows 2090."""
    at = YEAR_2090 + seq
    batches = notice(at, SourceStatus(connected=True)), batch(seq, at, Stored(packed(seq + 1), 16, 16))
    return record(*batches, replica="ahead", domain="m/ahead", life=life)


def rows_of_log(log: Sequence[tuple[EventsRecord, float]], cut_after: set[int]) -> list[Any]:
    """All rows of the fleet agent, of records and the log's time of each."""
    replica = ReplicaAgent(WORKER)
    fleet = FleetState(0, Fleet(horizon_seconds=60.0), carry_seconds=0.0)
    rows: list[Any] = []
    for said, written_at in log:
        replica.apply(bounded_by_log(said, written_at, ahead=5.0))
        if id(said) in cut_after:
            for residency in residency_of(replica.cut(START)):
                fleet.apply(fleet.next_offset, residency)
            rows += fleet.cut(0.0).rows
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_a_clock_that_is_ahead_moves_no_figure_of_others(seed: int) -> None:
    honest = shared_log(seed, replicas=3, rounds=60, began=START)
    log = [(said, said.batches[-1].received_at) for said in honest]
    cut_after = {id(said) for said in honest[4::5]}
    alone = rows_of_log(log, cut_after)
    troubled: list[tuple[EventsRecord, float]] = []
    for seq, (said, written_at) in enumerate(log):
        troubled += [(ahead(1, seq), written_at), (said, written_at)]
    beside = rows_of_log(troubled, cut_after)
    of_others = [row for row in beside if row.hash_domain != "m/ahead"]
    assert of_others == alone
    assert len(of_others) < len(beside)
    assert sum(row.evicted_blocks for row in alone if isinstance(row, FillsRow)) > 100, "losses count"
    last = max(row.window for row in alone if not isinstance(row, HashGroupRow))
    assert max(row.window for row in beside if not isinstance(row, HashGroupRow)) == last
