"""Whatever a process had committed when it died, the records give back the state of its last checkpoint."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from pipeline.residency.checkpoint import partition_snapshots, snapshot
from pipeline.residency.counting.pool import Pool
from pipeline.residency.partition import PartitionState
from schemas.checkpoints import META_KEY, BaseRange, base_slot, slot_key
from schemas.events import Batch, Cleared, Event, EventsRecord, Opened, Removed, Stored
from schemas.settings import Worker

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
        at = START + step
        batches = [] if self._seq[replica] else [Batch(None, at, at, [Opened(0, complete=True)])]
        batches.append(Batch(self._seq[replica], at, at, [self._event() for _ in range(rng.integers(1, 6))]))
        self._seq[replica] += 1
        return EventsRecord(replica, "m", "d", 0, 1, batches)

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
        for name in ("spread", "bases", "last_delta", "last_slot"):
            head.pop(name, None)
        found[key] = head
        for pool in source.pools:
            assert isinstance(pool, Pool)
            live = pool.table.live()
            fields = [name for name in live.dtype.names or () if name != "unsaved"]
            found[key, pool.head.medium] = sorted(live[fields].tolist())
    return found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bases of ten blocks, few deltas, and room for one base in a checkpoint."""
    monkeypatch.setattr(snapshot, "BASE_ENTRIES", 10)
    monkeypatch.setattr(snapshot, "_SPARED_ENTRIES", 20)
    monkeypatch.setattr(snapshot, "_MOST_DELTAS", 6)
    monkeypatch.setattr(partition_snapshots, "BASE_BYTES", 1)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("seed", "universe"), [(1, 40), (2, 200), pytest.param(3, 200, marks=pytest.mark.night)]
)
def test_every_checkpoint_gives_back_the_state_at_its_cut(seed: int, universe: int) -> None:
    rng, churn = np.random.default_rng(seed), Churn(seed, universe=universe)
    state = PartitionState(0, Worker(), shards=4)
    latest: dict[bytes, bytes] = {}
    ranges = 0
    for step in range(150):
        state.apply(state.next_offset, churn.record(step))
        if rng.random() < 0.3:
            continue
        latest.update(state.cut(START + step).checkpoints)
        restored = PartitionState.restore(0, Worker(), shards=4, latest=latest)
        assert contents(restored) == contents(state)
        for source in state.sources.values():
            ranges = max(ranges, len(source.head.bases))
        if rng.random() < 0.1:
            state = restored
    assert ranges > 3, "sources have several bases"


def held_by(blocks: np.ndarray) -> PartitionState:
    state = PartitionState(0, Worker(), shards=4)
    batches = [
        Batch(None, START, START, [Opened(0, complete=True)]),
        Batch(0, START, START, [Removed(bytes(8)), Stored(blocks.astype(">u8").tobytes(), 16)]),
    ]
    state.apply(0, EventsRecord("a", "m", "d", 0, 1, batches))
    return state


def test_no_checkpoint_holds_more_than_what_changed_and_a_few_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_snapshots, "BASE_BYTES", 100_000)
    monkeypatch.setattr(snapshot, "BASE_ENTRIES", 4_000)
    blocks = np.random.default_rng(1).integers(1, 1 << 63, 60_000, np.uint64)
    state = held_by(blocks)
    latest = dict(state.cut(START).checkpoints)
    whole = sum(map(len, latest.values()))
    written = 0
    for step in range(1, 101):
        # Two in a hundred go, and come again with the next step.
        part = blocks[(step - 1) % 50 :: 50].astype(">u8").tobytes()
        batch = Batch(step, START, START, [Removed(part), Stored(part, 16)])
        state.apply(step, EventsRecord("a", "m", "d", 0, 1, [batch]))
        cut = dict(state.cut(START + step).checkpoints)
        latest.update(cut)
        size = sum(map(len, cut.values()))
        assert size < 40 * 1_200 + 100_000 + 2 * 26 * 4_000
        written += size
    assert 1.5 * whole < written < 6 * whole, "everything came once in deltas, and at least once in bases"
    restored = PartitionState.restore(0, Worker(), shards=4, latest=latest)
    assert contents(restored) == contents(state)


def test_a_clear_costs_a_checkpoint_no_more_than_its_head() -> None:
    state = held_by(np.arange(1, 50_001, dtype=np.uint64))
    latest = dict(state.cut(START).checkpoints)
    state.apply(1, EventsRecord("a", "m", "d", 0, 1, [Batch(1, START, START, [Cleared()])]))
    cut = dict(state.cut(START).checkpoints)
    assert sum(map(len, cut.values())) < 2_000
    latest.update(cut)
    assert contents(PartitionState.restore(0, Worker(), shards=4, latest=latest)) == contents(state)


@pytest.mark.usefixtures("small")
def test_bases_that_are_not_needed_any_more_leave_nothing_behind() -> None:
    blocks = np.arange(1, 401, dtype=np.uint64) * np.uint64(0x0123456789ABCDE)
    state = held_by(blocks)
    latest = dict(state.cut(START).checkpoints)
    step = 0

    def play(*events: Event) -> None:
        nonlocal step
        step += 1
        batch = Batch(step, START, START, [*events])
        state.apply(step, EventsRecord("a", "m", "d", 0, 1, [batch]))
        latest.update(state.cut(START + step).checkpoints)

    for _ in range(50):
        packed = blocks.astype(">u8").tobytes()
        play(Removed(packed), Stored(packed, 16))
    head = state.sources["a", 0].head
    assert len(head.bases) > 10
    play(Cleared())
    for _ in range(100):
        play(Stored(blocks[:4].astype(">u8").tobytes(), 16))
        play(Removed(blocks[:4].astype(">u8").tobytes()))
    assert head.bases == [BaseRange(0, head.bases[0].base, head.bases[0].delta)]
    kept = {key for key in latest if latest[key] and b"base" in key}
    assert kept == {slot_key("a", 0, base_slot(head.bases[0].base))}


@pytest.mark.usefixtures("small")
def test_deltas_take_no_more_room_than_once_counted_together() -> None:
    state = held_by(np.arange(1, 101, dtype=np.uint64))
    latest = dict(state.cut(START).checkpoints)
    for step in range(1, 300):
        packed = (step % 100 + 1).to_bytes(8, "big") * 200
        batch = Batch(step, START, START, [Stored(packed, 16), Removed(packed)])
        state.apply(step, EventsRecord("a", "m", "d", 0, 1, [batch]))
        latest.update(state.cut(START + step).checkpoints)
    slots = [
        key
        for key in map(msgspec.msgpack.decode, latest.keys() - {META_KEY})
        if key[2] not in ("head", "base")
    ]
    assert len(slots) < 50
