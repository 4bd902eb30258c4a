"""A base holds the whole state of a shard, in however many records it is written."""

from __future__ import annotations

import msgspec
import pytest

from pipeline.errors import CheckpointCorrupt, CheckpointFormatUnknown
from pipeline.fleet import packing, snapshot
from pipeline.fleet.snapshot import CATCHING_UP_SECONDS, MAX_SECONDS, MIN_CHANGES, Bases
from pipeline.fleet.state import FleetState
from schemas.fleet_checkpoints import FORMAT, HEAD_KEY, FleetHead, part_key
from schemas.residency import CLEARED, EVICTED, FILLED
from schemas.settings import Fleet
from tests.support.inputs.residency_records import record

START = 1_800_000_000.0
RECORDS = [
    *(record(source, FILLED, range(1 + 40 * source, 101 + 40 * source), START) for source in range(5)),
    record(0, FILLED, range(500, 520), START + 1, medium="cpu"),
    record(1, EVICTED, range(41, 91), START + 2),
    record(2, CLEARED, range(81, 121), START + 3),
    record(1, FILLED, range(41, 61), START + 12),
]
AFTER = [
    record(2, FILLED, range(81, 101), START + 14),
    record(5, FILLED, range(41, 71), START + 15),
    record(1, FILLED, range(61, 91), START + 31),
]


def base_of(state: FleetState) -> dict[bytes, bytes]:
    state.cut(START)
    return dict(state.cut(START + MAX_SECONDS).checkpoints)


def applied() -> FleetState:
    state = FleetState(0, Fleet(), carry_seconds=60.0)
    for offset, each in enumerate(RECORDS):
        state.apply(offset, each)
    return state


@pytest.mark.parametrize("part_bytes", [packing.PART_BYTES, 1000])
def test_a_restored_shard_goes_on_as_if_nothing_had_happened(
    monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    monkeypatch.setattr(packing, "PART_BYTES", part_bytes)
    state = applied()
    latest = base_of(state)
    assert (len(latest) > 20) == (part_bytes == 1000)
    restored = FleetState(0, Fleet(), carry_seconds=60.0, latest=latest)
    assert restored.head == state.head
    for offset, each in enumerate(AFTER, len(RECORDS)):
        state.apply(offset, each)
        restored.apply(offset, each)
    now = START + 2 * MAX_SECONDS
    rows = [repr(row) for row in state.cut(now).rows]
    # What was said of hashes is said again by whoever takes over.
    again = [repr(row) for row in restored.cut(now).rows]
    assert set(rows) <= set(again)
    assert {row for row in again if not row.startswith("HashGroupRow")} <= set(rows)


def test_a_base_that_takes_many_checkpoints_is_of_the_moment_it_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whenever the worker dies, the base there is and the records after it give the same rows."""
    monkeypatch.setattr(packing, "PART_BYTES", 4000)
    monkeypatch.setattr(snapshot, "BYTES_AT_ONCE", 1)
    log = [*RECORDS, *AFTER * 30]
    state = applied()
    latest: dict[bytes, bytes] = {}
    restored_at: set[int] = set()
    state.cut(START)
    for offset, each in enumerate(log[len(RECORDS) :], len(RECORDS)):
        now = START + offset * MAX_SECONDS / 10
        cut = state.cut(now)
        latest.update(cut.checkpoints)
        restored = FleetState(0, Fleet(), carry_seconds=60.0, latest=latest)
        restored_at.add(restored.next_offset)
        for number in range(restored.next_offset, offset):
            restored.apply(number, log[number])
        assert {repr(row) for row in cut.rows} <= {repr(row) for row in restored.cut(now).rows}
        for table in ("blocks", "pairs", "losses"):
            found, wanted = (sorted(getattr(each.index, table).tolist()) for each in (restored, state))
            assert [row for row in found if row[0]] == [row for row in wanted if row[0]]
        state.apply(offset, each)
    assert len(restored_at) > 2, "there was no base, then one, then the next"


@pytest.mark.parametrize("other", [FORMAT - 1, FORMAT + 1])
def test_a_base_of_an_unknown_format_is_refused(other: int) -> None:
    latest = base_of(applied())
    latest[HEAD_KEY] = msgspec.msgpack.encode({"format": other, "what": "else"})
    said = f"format {other}, and this kvlens reads format {FORMAT}"
    with pytest.raises(CheckpointFormatUnknown, match=said):
        FleetState(0, Fleet(), carry_seconds=60.0, latest=latest)


def test_a_base_that_lacks_a_part_is_refused() -> None:
    latest = base_of(applied())
    del latest[part_key(1, 2)]
    with pytest.raises(CheckpointCorrupt, match="part 2 of the base is missing"):
        FleetState(0, Fleet(), carry_seconds=60.0, latest=latest)


def test_a_base_of_another_sample_rate_is_passed_over_but_not_mixed_with_the_next() -> None:
    latest = base_of(applied())
    state = FleetState(0, Fleet(sample_rate=0.25), carry_seconds=60.0, latest=latest)
    assert (state.next_offset, state.head.sources) == (0, [])
    for offset, each in enumerate(RECORDS):
        state.apply(offset, each)
    latest.update(base_of(state))
    restored = FleetState(0, Fleet(sample_rate=0.25), carry_seconds=60.0, latest=latest)
    assert restored.head == state.head
    assert HEAD_KEY in latest
    assert restored.head.epoch == 2


@pytest.mark.parametrize(
    ("behind", "entries", "changes"),
    [
        pytest.param(0.0, 10 * MIN_CHANGES, 5 * MIN_CHANGES, id="half of them changed"),
        pytest.param(CATCHING_UP_SECONDS + 1, 10 * MIN_CHANGES, 40 * MIN_CHANGES, id="four times as many"),
        pytest.param(CATCHING_UP_SECONDS + 1, 10, MIN_CHANGES, id="a small one"),
    ],
)
def test_a_base_is_written_after_so_many_changes(behind: float, entries: int, changes: int) -> None:
    head = FleetHead(1, epoch=0)
    bases = Bases(head, dict)
    assert bases.take(START, entries, START - behind) == []
    head.followed = changes - 1
    assert bases.take(START, entries, START - behind) == []
    head.followed = changes
    assert [key for key, _ in bases.take(START, entries, START - behind)] == [HEAD_KEY]


def test_a_clock_that_was_set_back_delays_no_base() -> None:
    head = FleetHead(1, epoch=0)
    bases = Bases(head, dict)
    assert not bases.due(START, 10, START)
    head.followed = 1
    assert not bases.due(START - 3600, 10, START)
    assert bases.due(START - 3600 + MAX_SECONDS, 10, START)


def test_a_shard_that_has_caught_up_gets_its_base_though_its_latest_event_is_old() -> None:
    """Whoever takes over later would apply eight times as much again."""
    head = FleetHead(1, epoch=0)
    bases = Bases(head, dict)
    entries, behind = 10 * MIN_CHANGES, CATCHING_UP_SECONDS + 1
    assert bases.take(START, entries, START - behind) == []
    head.followed = entries // 2
    assert not bases.due(START, entries, START - behind)
    assert bases.take(START, entries, START - behind) == [], "it changes, so it catches up"
    assert bases.due(START + 1, entries, START - behind)
    assert [key for key, _ in bases.take(START + 1, entries, START - behind)] == [HEAD_KEY]
