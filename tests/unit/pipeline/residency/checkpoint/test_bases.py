"""Whatever a process had committed when it died, bases and the log give back the state at its last cut."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from pipeline.residency.checkpoint import bases, entries, partition_bases
from pipeline.residency.counting.pool import Pool
from pipeline.residency.partition import PartitionState
from schemas.checkpoints import BASE, META_KEY, PartitionMeta, SourceBase, part_slot, slot_key
from schemas.events import Cleared, Event, EventsRecord, Removed, SourceStatus, Stored
from schemas.settings import Worker
from tests.support.inputs.event_records import notice, record, sent
from tests.support.replica_agent import ReplicaAgent

START = 1_800_000_000.0
REPLICAS = ("a", "b", "c")


class Churn:
    """Random events of a few sources, on two media and in two block sizes; now and then a clear."""

    def __init__(self, seed: int, *, universe: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._universe = self._rng.integers(1, 1 << 64, universe, np.uint64, endpoint=False)
        self._seq = dict.fromkeys(REPLICAS, 0)

    def record(self, step: int) -> EventsRecord:
        rng = self._rng
        replica = REPLICAS[int(rng.integers(len(REPLICAS)))]
        events = [self._event() for _ in range(rng.integers(1, 6))]
        self._seq[replica] += 1
        return sent(self._seq[replica] - 1, START + step, *events, replica=replica)

    def _event(self) -> Event:
        rng = self._rng
        blocks = rng.choice(self._universe, int(rng.integers(1, 20))).astype(">u8").tobytes()
        medium = "gpu" if rng.random() < 0.7 else "cpu"
        kind = rng.random()
        if kind < 0.02:
            return Cleared()
        if kind < 0.45:
            return Removed(blocks, medium=medium)
        # Sizes that do not divide each other are copies of several sizes, not two granularities.
        size = 24 if kind < 0.5 else 16
        return Stored(blocks, size, medium=medium)


def contents(state: PartitionState) -> dict:
    """Return all that a checkpoint has to give back."""
    found: dict = {"next": state.next_offset}
    for key, source in state.sources.items():
        head = msgspec.to_builtins(source.head)
        del head["spread"]
        found[key] = head
        for pool in source.pools:
            assert isinstance(pool, Pool)
            found[key, pool.head.medium] = sorted(pool.copies.live().tolist())
    return found


def gone_on(agent: ReplicaAgent) -> PartitionState:
    """Return the state of somebody who goes on from what was committed."""
    another = ReplicaAgent(shards=4)
    another.log, another.latest = agent.log, agent.latest
    another.killed()
    return another.state


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bases of several records, of which a checkpoint has room for some."""
    monkeypatch.setattr(entries, "RECORD_ENTRIES", 10)
    monkeypatch.setattr(bases, "MIN_CHANGES", 20)
    monkeypatch.setattr(bases, "MAX_SECONDS", 60.0)
    monkeypatch.setattr(bases, "HEAD_BYTES", 400)
    monkeypatch.setattr(partition_bases, "BASE_BYTES", 1_000)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("seed", "universe"), [(1, 40), (2, 200), pytest.param(3, 200, marks=pytest.mark.night)]
)
def test_every_checkpoint_gives_back_the_state_at_its_cut(seed: int, universe: int) -> None:
    rng, churn = np.random.default_rng(seed), Churn(seed, universe=universe)
    agent, begins = ReplicaAgent(shards=4), []
    for step in range(150):
        agent.apply(churn.record(step))
        if rng.random() < 0.3:
            continue
        if rng.random() < 0.1:
            agent.state.leaves()
        agent.cut(START + step)
        restored = gone_on(agent)
        assert contents(restored) == contents(agent.state)
        begins.append(min(one.lacks or step for one in meta_of(agent).sources))
        if rng.random() < 0.1:
            agent.state = restored
    assert begins[-1] > 100, "new bases take the place of old ones"


def meta_of(agent: ReplicaAgent) -> PartitionMeta:
    return msgspec.msgpack.decode(agent.latest[META_KEY], type=PartitionMeta)


class Engine(ReplicaAgent):
    """One source with blocks."""

    def __init__(self, blocks: int) -> None:
        super().__init__(shards=4)
        self.blocks = np.random.default_rng(1).integers(1, 1 << 63, blocks, np.uint64)
        self.at = START
        self.seq = 1
        self.apply(sent(0, START, Removed(bytes(8)), Stored(self.packed(slice(None)), 16)))

    def packed(self, chosen: slice) -> bytes:
        return self.blocks[chosen].astype(">u8").tobytes()

    def play(self, *events: Event) -> int:
        """Apply a batch and cut a second later; return the bytes of the checkpoint."""
        self.apply(sent(self.seq, self.at, *events))
        self.seq += 1
        return self.look()

    def look(self, seconds: float = 1.0) -> int:
        self.at += seconds
        return sum(len(value or b"") for _, value in self.cut(self.at).checkpoints)


def test_bases_follow_changes_and_no_checkpoint_holds_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_bases, "BASE_BYTES", 100_000)
    monkeypatch.setattr(entries, "RECORD_ENTRIES", 4_000)
    engine = Engine(60_000)
    sizes = []
    for step in range(101):
        # Two in a hundred go, and come again with the next step.
        part = engine.packed(slice(step % 50, None, 50))
        sizes.append(engine.play(Removed(part), Stored(part, 16)))
    assert max(sizes) < 100_000 + 4_000 * 34 + 2_000
    whole = 60_000 * 26
    assert 1.5 * whole < sum(sizes) < 4 * whole, "a first one, and one for all that left and came"
    assert contents(gone_on(engine)) == contents(engine.state)


def test_what_does_not_change_is_not_written_again() -> None:
    engine = Engine(50_000)
    engine.state.leaves()
    engine.look()
    sizes = []
    for _ in range(100):
        engine.apply(record(notice(engine.at, SourceStatus(connected=True))))
        sizes.append(engine.look(10.0))
    assert sum(sizes) < 100 * 1_500
    # Its base still follows the log.
    lacks = meta_of(engine).sources[0].lacks
    assert lacks is None or len(engine.log) - lacks < 6
    assert contents(gone_on(engine)) == contents(engine.state)


def test_few_changes_are_written_now_and_then() -> None:
    engine = Engine(50_000)
    assert engine.look() > 1_000_000, "the first one, at once"
    sizes = [engine.play(Stored(engine.packed(slice(step, step + 1)), 16)) for step in range(1200)]
    assert sum(size > 1_000_000 for size in sizes) == 3, "one in 50,000 / 150 seconds"
    assert contents(gone_on(engine)) == contents(engine.state)


def test_a_clock_that_was_set_back_delays_no_base() -> None:
    engine = Engine(1_000)
    engine.look()
    engine.play(Stored(engine.packed(slice(1)), 16))
    assert meta_of(engine).sources[0].lacks is not None
    engine.look(-3600.0)
    engine.look(bases.MIN_SECONDS)
    assert meta_of(engine).sources[0].lacks is None


def test_a_base_leaves_nothing_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "RECORD_ENTRIES", 100)
    monkeypatch.setattr(bases, "MIN_CHANGES", 300)
    engine = Engine(1_000)
    engine.look()
    for _ in range(5):
        engine.play(Cleared())
        engine.play(Stored(engine.packed(slice(400)), 16))
    base = msgspec.msgpack.decode(engine.latest[slot_key("r", 0, BASE)], type=SourceBase)
    slots = [BASE, *(part_slot(base.number, part) for part in range(base.parts))]
    assert engine.latest.keys() == {META_KEY, *(slot_key("r", 0, slot) for slot in slots)}


def test_the_last_checkpoint_of_an_owner_leaves_nothing_to_apply_again() -> None:
    engine = Engine(1_000)
    engine.state.leaves()
    engine.look()
    restored = PartitionState.restore(0, Worker(), shards=4, latest=engine.latest)
    assert restored.next_offset == len(engine.log)
    assert contents(restored) == contents(engine.state)
