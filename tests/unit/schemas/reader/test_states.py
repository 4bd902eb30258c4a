"""What kvlens-reader says a replica holds: against real engines' own account, and the worker's state."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import msgspec
import pytest

from kvlens_reader import Copies, Resident, decode
from pipeline.residency.partition import PartitionState
from schemas.events import Batch, Cleared, Closed, Event, EventsRecord, Opened, Removed, Stored
from schemas.residency import EVICTED, FILLS, ResidencyChanges, ResidencyRecord, SourceChanges
from schemas.settings import Worker
from tests.support.inputs import event_records
from tests.support.inputs.captures import NAMES, captured_final, captured_records
from tests.support.inputs.generated_logs import generated_log
from tests.support.suite.night import first_by_day

WHOLE_PROMPTS = pytest.mark.parametrize("name", first_by_day(NAMES, 3))


def read(record: EventsRecord) -> Any:
    return decode("kvlens.events.v1", msgspec.msgpack.encode(record))


@WHOLE_PROMPTS
def test_copies_are_what_the_engine_had_in_the_end(name: str) -> None:
    copies = Copies()
    for said in captured_records(name):
        copies.take(read(said))
        copies.take(read(said))
    final: defaultdict[int, set[int]] = defaultdict(set)
    for group, block in captured_final(name):
        final[group].add(block)
    held = copies.held(name)
    assert {group: {*held.get(("gpu", group), ())} for group in final} == final
    assert {group for medium, group in held if medium == "gpu"} <= {*final}


def test_events_and_residency_tell_the_same() -> None:
    """Two topics by two ways: the worker's state is between them."""
    log = generated_log(11, replicas=3, rounds=40, began=time.time() // 10 * 10 - 600)
    state, copies, resident = PartitionState(0, Worker(), shards=4), Copies(), Resident()
    for offset, said in enumerate(log):
        state.apply(offset, said)
        copies.take(read(said))
        if offset % 7 == 0 or offset == len(log) - 1:
            for _, _, value in state.cut(time.time()).residency:
                resident.take(decode("kvlens.residency.v1", value))
    assert len(copies.sources()) == 3
    for replica, rank in copies.sources():
        assert copies.held(replica, rank) == resident.held(replica, rank) != {}


def test_what_comes_is_held_by_whatever_kind_of_fill() -> None:
    count = len(FILLS)
    hashes = b"".join(BLOCKS[:count])
    changes = ResidencyChanges(
        "gpu", 0, 2 * hashes, count * bytes((EVICTED,)) + FILLS, 16 * count * b"\0", 8 * count * b"\1"
    )
    said = ResidencyRecord(0, 0, 1, [SourceChanges("r", "m", "d", 0, 1, "complete", [changes])])
    resident = Resident()
    resident.take(decode("kvlens.residency.v1", msgspec.msgpack.encode(said)))
    assert resident.held("r") == {("gpu", 0): {1, 2, 3}}


BLOCKS = [number.to_bytes(8, "big") for number in range(1, 6)]


def record(*batches: tuple[int | None, Event], life: int = 1, **more: Any) -> Any:
    told = [Batch(seq, 1.0, 1.0, [event]) for seq, event in batches]
    return read(event_records.record(*told, life=life, **more))


def gpu(copies: Copies) -> set[int]:
    return {*copies.held("r").get(("gpu", 0), ())}


def test_a_block_leaves_with_its_last_copy_and_a_batch_counts_once() -> None:
    copies = Copies()
    both, one = Stored(BLOCKS[0] + BLOCKS[1], 16), Stored(BLOCKS[0], 16)
    first = record((0, both), (1, one))
    assert [change.hash for change in copies.apply(first)] == [1, 2, 1]
    assert [*copies.apply(first)] == []
    copies.take(record((2, Removed(BLOCKS[0] + BLOCKS[1]))))
    assert gpu(copies) == {1}
    copies.take(record((3, Removed(BLOCKS[0]))))
    assert gpu(copies) == set()


def test_a_new_session_begins_empty_and_an_old_one_changes_nothing() -> None:
    copies = Copies()
    copies.take(record((7, Stored(BLOCKS[0], 16))))
    copies.take(record((0, Stored(BLOCKS[1], 16)), life=2))
    copies.take(record((8, Stored(BLOCKS[2], 16))))
    assert gpu(copies) == {2}
    copies.take(record((None, Closed("removed")), life=2))
    assert copies.held("r") == {}


@pytest.mark.parametrize(
    ("cleared", "more", "left"),
    [
        (Cleared(), {}, {("cpu", 0), ("kvcr:cpu", 0)}),
        (Cleared(), {"clears_all": True}, {("kvcr:cpu", 0)}),
        (Cleared(""), {}, {("kvcr:cpu", 0)}),
        (Cleared("cpu"), {}, {("gpu", 0), ("gpu", 1), ("kvcr:cpu", 0)}),
        (Cleared("kvcr:"), {}, {("gpu", 0), ("gpu", 1), ("cpu", 0)}),
        (Cleared(group_idx=1), {}, {("gpu", 0), ("cpu", 0), ("kvcr:cpu", 0)}),
    ],
)
def test_a_clear_empties_what_it_names(cleared: Cleared, more: dict[str, Any], left: set[Any]) -> None:
    copies = Copies()
    stores = [
        Stored(BLOCKS[0], 16, medium=medium, group_idx=group)
        for medium, group in (("gpu", 0), ("gpu", 1), ("cpu", 0), ("kvcr:cpu", 0))
    ]
    copies.take(record(*enumerate(stores), **more))
    copies.take(record((9, cleared), **more))
    assert {*copies.held("r")} == left


def test_what_is_announced_again_is_no_second_copy_where_the_record_says_so() -> None:
    again = Stored(BLOCKS[0] + BLOCKS[1], 16)
    for more, copies_left in (
        ({}, {1, 2}),
        ({"may_reannounce": True}, set()),
        ({"may_reannounce": True, "remarks": ["contradiction"]}, {1, 2}),
        ({"one_copy": True}, set()),
    ):
        copies = Copies()
        copies.take(record((0, again), (1, again), (2, Removed(BLOCKS[0] + BLOCKS[1])), **more))
        assert gpu(copies) == copies_left, more


def test_a_block_that_leaves_once_more_than_it_counted_proves_second_copies() -> None:
    again = Stored(BLOCKS[0] + BLOCKS[1], 16)
    copies, more = Copies(), {"may_reannounce": True}
    copies.take(record((0, again), (1, again), (2, Removed(BLOCKS[0])), **more))
    assert gpu(copies) == {2}
    copies.take(record((3, Removed(BLOCKS[0])), (4, Removed(BLOCKS[1])), (5, again), **more))
    assert gpu(copies) == {1, 2}
    copies.take(record((6, Removed(BLOCKS[1])), **more))
    assert gpu(copies) == {1, 2}
    copies.take(record((0, again), (1, again), (2, Removed(BLOCKS[0])), life=2, **more))
    assert gpu(copies) == {2}


def test_second_copies_that_were_proved_are_so_for_the_rest_of_the_record_too() -> None:
    again, left = Stored(BLOCKS[0] + BLOCKS[1], 16), Removed(BLOCKS[0])
    events = (again, again, left, left, again, again, left)
    copies = Copies()
    copies.take(record(*enumerate(events), may_reannounce=True))
    assert gpu(copies) == {1, 2}


def test_opened_and_notices_change_nothing() -> None:
    copies = Copies()
    assert [*copies.apply(record((None, Opened(0, complete=True))))] == []
    assert copies.held("r") == copies.held("nobody") == {}
