"""Drift is zero for every engine whose stream is whole, and says so when removals are missing."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.normalise.normaliser import Normaliser
from pipeline.residency.occupancy import Occupancy
from pipeline.residency.stream import drift
from pipeline.simulator.engine.scheduler import Engine
from pipeline.simulator.engine.settings import HYBRID_GROUPS, EngineSettings
from pipeline.simulator.traffic.requests import Request
from pipeline.simulator.wire.encoding import encoded_batch
from pipeline.simulator.wire.eras import ERAS
from schemas.checkpoints import DriftState
from schemas.events import Batch, Cleared, EngineCounters, Event, Removed, Stored
from schemas.rows import StreamHealthRow
from schemas.settings import Worker
from tests.support.checkout import CAPTURES
from tests.support.inputs.captures import captured_batches, captured_truth
from tests.support.inputs.event_records import batch, notice, opened, record
from tests.support.inputs.packed import packed
from tests.support.replica_agent import ReplicaAgent, rows_of
from tests.support.suite.night import first_by_day

START = 1_800_000_000.0


TRUTHS: dict[str, dict[str, Any]] = {
    name: captured_truth(name)
    for name in sorted(path.name.removesuffix(".truth.json.gz") for path in CAPTURES.glob("*.truth.json.gz"))
}
KNOWN = [name for name, one in TRUTHS.items() if "num_gpu_blocks" in one]


class Replica(ReplicaAgent):
    """A source whose engine is scraped before the first batch."""

    def __init__(self, capacity: int, block_size: int) -> None:
        super().__init__(Worker(idle_carry_seconds=0.001))
        self.add(
            notice(START, EngineCounters(capacity_blocks=capacity, block_size=block_size)), opened(START)
        )

    def add(self, *batches: Batch, life: int = 1) -> None:
        self.apply(record(*batches, life=life))

    @property
    def drift(self) -> int:
        return drift.blocks(self.source().head.drift, self.source().occupancy())

    def on_gpu(self) -> int:
        return sum(row.entries for row in self.source().occupancy() if row.medium == "gpu")


@pytest.mark.parametrize("name", first_by_day(KNOWN, 3))
def test_no_capture_drifts_after_any_batch(name: str) -> None:
    replica = Replica(TRUTHS[name]["num_gpu_blocks"], TRUTHS[name]["hash_block_size"])
    most = 0
    for told in captured_batches(name):
        replica.add(told)
        assert replica.drift == 0, told.seq
        most = max(most, replica.on_gpu())
    assert most > 0.9 * TRUTHS[name]["usable_blocks"], "the capture fills the engine"


@pytest.mark.parametrize("name", first_by_day(KNOWN, 3))
def test_a_capture_that_loses_removals_drifts_by_what_it_holds_too_many(name: str) -> None:
    replica = Replica(TRUTHS[name]["num_gpu_blocks"], TRUTHS[name]["hash_block_size"])
    removals = lost = worst = 0
    for told in captured_batches(name):
        kept: list[Event] = []
        for event in told.events:
            if isinstance(event, Removed) and event.medium == "gpu":
                removals += 1
                if removals % 3 == 0:
                    lost += 1
                    continue
            kept.append(event)
        told.events = kept
        replica.add(told)
        worst = max(worst, replica.on_gpu())
        assert replica.drift == max(0, replica.on_gpu() - TRUTHS[name]["usable_blocks"])
    assert lost
    assert worst > TRUTHS[name]["usable_blocks"]


@pytest.mark.parametrize("counters_first", [True, False])
def test_an_idle_source_is_told_of_as_drifting_as_soon_as_its_row_says_so(counters_first: bool) -> None:
    agent = ReplicaAgent()
    counters = notice(START, EngineCounters(capacity_blocks=3, block_size=16))
    stored = batch(0, START, Stored(bytes(range(4 * 8)), 16))
    first, second = (counters, stored) if counters_first else (stored, counters)
    for batches in ([opened(START), first], [second]):
        assert agent.state.troubles()["drifting"] == 0
        agent.apply(record(*batches))
    (row,) = rows_of(agent.cut(START), StreamHealthRow)
    assert (row.drift_blocks, row.drift_since) == (2, row.window)
    assert agent.state.troubles()["drifting"] == 1


HYBRID = EngineSettings(num_blocks=25, block_size=64, groups=HYBRID_GROUPS, fine_block_size=16)


@pytest.mark.parametrize(
    ("settings", "prompt_tokens"),
    [
        (EngineSettings(num_blocks=33, block_size=16), 100),
        (EngineSettings(num_blocks=33, block_size=16, cpu_blocks=50), 100),
        (HYBRID, 40),
        (HYBRID, 300),
    ],
    ids=["plain", "offload", "hybrid with fine blocks only", "hybrid"],
)
def test_no_simulated_engine_drifts(settings: EngineSettings, prompt_tokens: int) -> None:
    engine = Engine(settings)
    normaliser = Normaliser(max_frame_bytes=1 << 24)
    replica = Replica(settings.num_blocks, settings.block_size)
    seq = announced = 0
    for number in range(120):
        first = number * 1000
        engine.submit(Request("s", tuple(range(first, first + prompt_tokens)), (1, 2, 3), None))
        while engine.busy:
            events = engine.step()
            if not events:
                continue
            payload = encoded_batch(ERAS["vllm-0.33"], START + seq / 100, events)
            read = normaliser.normalise(payload, seq=seq, received_at=START + seq / 100)
            announced += sum(len(event.hashes) // 8 for event in read.events if isinstance(event, Stored))
            replica.add(read)
            seq += 1
            assert replica.drift == 0
    assert announced > 3 * settings.num_blocks, "more was announced than the engine could hold at once"


def stored(count: int, at: float, seq: int) -> Batch:
    return batch(seq, START + at, Stored(packed(*range(seq * 1000, seq * 1000 + count)), 16))


def test_rows_say_how_much_and_since_which_window() -> None:
    replica = Replica(11, 16)
    replica.add(stored(10, 1, 0))
    replica.add(stored(1, 12, 1))
    replica.add(stored(2, 22, 2))
    replica.add(batch(3, START + 41, Removed(packed(2000))))
    replica.add(batch(4, START + 51, Cleared()))
    replica.add(stored(11, 61, 5))
    rows = {row.window.timestamp() - START: row for row in rows_of(replica.cut(START), StreamHealthRow)}
    since = {at: row.drift_since and row.drift_since.timestamp() - START for at, row in rows.items()}
    assert [(at, rows[at].drift_blocks, since[at]) for at in sorted(rows)] == [
        (0, 0, None),
        (10, 1, 10),
        (20, 3, 10),
        (30, 3, 10),
        (40, 2, 10),
        (50, 0, None),
        (60, 1, 60),
    ]


def test_the_next_life_is_measured_by_what_its_own_engine_says() -> None:
    replica = Replica(5, 16)
    replica.add(stored(10, 1, 0))
    assert replica.drift == 6
    replica.add(opened(START + 2), stored(10, 2, 0), life=2)
    assert replica.drift == 0, "not known yet"
    replica.add(notice(START + 3, EngineCounters(capacity_blocks=9, block_size=16)), life=2)
    assert replica.drift == 2


def test_a_smaller_capacity_of_the_life_to_come_raises_no_alarm() -> None:
    replica = Replica(100, 16)
    replica.add(stored(50, 1, 0))
    replica.add(notice(START + 3, EngineCounters(capacity_blocks=9, block_size=16)))
    assert replica.drift == 0


def test_only_the_largest_blocks_of_each_group_on_the_gpu_count() -> None:
    state = DriftState(capacity_blocks=11, block_size=32)

    def part(entries: int, block_size: int, group_idx: int = 0, medium: str = "gpu") -> Occupancy:
        return Occupancy(medium, group_idx, block_size, entries, entries, 0, 0, False, False)

    assert drift.blocks(state, [part(10, 32)]) == 0
    assert drift.blocks(state, [part(11, 32)]) == 1
    assert drift.blocks(state, [part(10, 32), part(5, 16), part(900, 32, medium="cpu")]) == 0
    assert drift.blocks(state, [part(6, 32), part(6, 64, group_idx=1), part(50, 32, group_idx=1)]) == 2
    assert drift.blocks(state, [part(900, 16)]) == 0, "smaller than the engine's own: no block of its own"
    assert drift.blocks(DriftState(capacity_blocks=11), [part(900, 16)]) == 0
    assert drift.blocks(DriftState(block_size=16), [part(900, 16)]) == 0
