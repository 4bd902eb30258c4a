"""What a removal proves to have been there all the time is no prefill of the fleet."""

from __future__ import annotations

import pytest

from schemas.events import Event, Removed, Stored
from schemas.fleet_rows import FillsRow
from schemas.settings import Fleet
from tests.support.fleet_recount import compared, rows_of
from tests.support.inputs.copying_engine import BEGAN, SIZE, CopyingEngine
from tests.support.inputs.event_records import sent
from tests.support.inputs.packed import packed
from tests.support.replica_agent import ReplicaAgent, residency_of
from tests.support.suite.night import first_by_day


def test_a_block_that_seemed_to_have_left_is_announced_again_and_not_filled() -> None:
    agent, said = ReplicaAgent(), []
    store, gone = Stored(packed(1, 2, 3), SIZE, 3 * SIZE), Removed(packed(2))
    steps: list[list[Event]] = [[store], [store], [store], [gone], [gone], [gone], [store]]
    for seq, events in enumerate(steps):
        one = sent(seq, BEGAN + seq, *events)
        one.may_reannounce = True
        agent.apply(one)
        said += residency_of(agent.cut(BEGAN + seq))
    rows = [row for row in rows_of(said, Fleet()) if isinstance(row, FillsRow)]
    # The first removal seemed to leave none of block 2; the second shows that there are more.
    assert sum(row.reannounced_blocks for row in rows) == 1
    assert sum(row.filled_blocks for row in rows) == 4
    assert sum(row.evicted_blocks for row in rows) == 1
    findings = compared(said, rows_of(said, Fleet()), Fleet())
    assert findings.equal, findings.kept[:3]


@pytest.mark.parametrize("seed", first_by_day(range(20), 4))
def test_a_fleet_whose_engines_copy_is_recounted(seed: int) -> None:
    engines = [CopyingEngine(seed * 3 + number, f"r{number}") for number in range(3)]
    agent, said = ReplicaAgent(), []
    for _ in range(40):
        for engine in engines:
            agent.apply(engine.record())
        at = max(engine.at for engine in engines)
        cut = agent.moved(at) if engines[0].rng.random() < 0.3 else agent.cut(at)
        said += residency_of(cut)
    fleet = Fleet()
    rows = rows_of(said, fleet)
    assert sum(row.reannounced_blocks for row in rows if isinstance(row, FillsRow)) > 0
    killed = tuple(range(3, len(said), 9))
    for found in (rows, rows_of(said, fleet, killed=killed)):
        findings = compared(said, found, fleet)
        assert findings.equal, findings.kept[:3]
