"""Blocks whose bytes are known: what they take, how they are used, and how much cache their uses need."""

from __future__ import annotations

import msgspec
import pytest

from pipeline.residency.objects import medium as order
from pipeline.residency.objects.objects import HeldObjects, Objects
from pipeline.residency.objects.recency import Recency
from pipeline.residency.stream.session import new_head
from schemas.checkpoints import SourceHead
from schemas.events import Accessed, Capacity, Stored
from schemas.pool_checkpoints import ObjectFlow
from tests.support.inputs.packed import packed

MIB = 1 << 20


def store(*hashes: int, size: int = MIB, medium: str = "cpu", group: int = 0) -> Stored:
    return Stored(packed(*hashes), 256, medium=medium, group_idx=group, size_bytes=size * len(hashes))


class Source:
    """Objects of a source that is saved and restored whenever a test likes."""

    def __init__(self, most: int = 100) -> None:
        self.head = new_head("r", 0)
        self.most = most
        self.objects = Objects(self.head, most=most, most_pools=3)

    def restored(self) -> None:
        self.head = msgspec.msgpack.decode(msgspec.msgpack.encode(self.head), type=SourceHead)
        self.objects = Objects(self.head, most=self.most, most_pools=3)

    def only(self) -> HeldObjects:
        (found,) = self.objects.held()
        return found


def test_uses_are_counted_with_their_bytes_and_tokens_and_hits_apart() -> None:
    source = Source()
    source.objects.store(store(1, 2, size=3 * MIB), 100.0)
    source.objects.access(Accessed(packed(1, 1, 9)), 101.0)
    source.objects.access(Accessed(packed(2), hits=True), 103.0)
    assert source.only() == HeldObjects(
        "cpu",
        0,
        2,
        6 * MIB,
        0,
        ObjectFlow(
            stored_objects=2,
            stored_bytes=6 * MIB,
            accesses=3,
            accessed_tokens=768,
            accessed_bytes=9 * MIB,
            hits=1,
            hit_tokens=256,
            hit_bytes=3 * MIB,
            first_accesses=2,
            unknown_accesses=1,
            # After 1 s, at once, and after 3 s.
            reuse_hist=[1, *[0] * 10, 1, 1],
            # Both objects were used since the first, then only itself; then both again.
            needed_hist=[0, 0, 1, 2],
        ),
    )
    source.objects.window_ended()
    assert source.only().flow == ObjectFlow()
    assert source.only().objects == 2


@pytest.mark.parametrize("restored", [False, True])
def test_an_access_needs_a_cache_of_all_that_was_used_since(restored: bool) -> None:
    source = Source()
    for number, size in enumerate([1, 2, 4, 8, 16], 1):
        source.objects.store(store(number, size=size * MIB, group=number % 2), float(number))
    if restored:
        source.restored()
    source.objects.remove("cpu", 1, packed(3))  # what left needs no room
    source.objects.store(store(2, size=3 * MIB), 6.0)  # there again, larger: a use
    source.objects.access(Accessed(packed(1), group_idx=1), 7.0)  # 1 + 8 + 16 + 3 = 28: 32 suffice
    source.objects.access(Accessed(packed(1), group_idx=1), 8.0)  # 1
    source.objects.access(Accessed(packed(5, 1), group_idx=1), 9.0)  # 16 + 3 + 1 = 20: 32; 1 + 16 = 17: 32
    source.objects.access(Accessed(packed(2)), 10.0)  # 3 + 16 + 1 = 20: 32
    needed = {held.group_idx: held.flow.needed_hist for held in source.objects.held()}
    assert needed == {1: [1, 0, 0, 0, 0, 3], 0: [0, 0, 0, 0, 0, 1]}
    assert sum(held.size for held in source.objects.held()) == 28 * MIB


def test_what_is_removed_counts_by_its_uses_and_what_is_cleared_does_not() -> None:
    source = Source()
    source.objects.store(store(*range(1, 9)), 1.0)
    for hashes in ((2,), (3, 4, 4), (5,) * 4, (6,) * 7):
        source.objects.access(Accessed(packed(*hashes)), 2.0)
    source.restored()
    source.objects.remove("cpu", 0, packed(1, 2, 3, 4, 5, 6, 77))
    source.objects.remove("cpu", 5, packed(7))
    source.objects.remove("disk", 0, packed(7))
    # Without any, one or one, two, four to seven.
    assert source.only().flow.uses_hist == [1, 2, 1, 2]
    source.objects.clear(lambda medium: medium == "disk")
    assert source.only().objects == 2
    source.objects.clear(lambda medium: True)
    assert source.only()[2:4] == (0, 0)
    assert source.only().flow.uses_hist == [1, 2, 1, 2]
    source.objects.store(store(7), 3.0)
    source.objects.access(Accessed(packed(7)), 3.0)
    assert source.only().flow.first_accesses == 6


def test_where_an_access_names_no_medium_it_is_the_one_that_holds_the_object() -> None:
    source = Source()
    source.objects.store(store(1, medium="zz"), 1.0)
    source.objects.store(store(2, medium="cpu"), 1.0)
    source.objects.store(store(3, medium="cpu", group=1), 1.0)
    source.objects.access(Accessed(packed(1, 2, 9)), 2.0)
    source.objects.access(Accessed(packed(2), "zz"), 2.0)
    source.objects.access(Accessed(packed(1), None, None, 7), 2.0)
    source.objects.access(Accessed(packed(1), "one too many"), 2.0)
    found = {
        (held.medium, held.group_idx): (held.flow.accesses, held.flow.unknown_accesses)
        for held in source.objects.held()
    }
    assert found == {("zz", 0): (1, 1), ("cpu", 0): (1, 1), ("cpu", 1): (0, 0)}


def test_a_medium_becomes_known_by_its_first_access() -> None:
    source = Source()
    source.objects.access(Accessed(packed(1, 2)), 1.0)
    assert not source.objects
    source.objects.access(Accessed(packed(1, 2), "disk"), 1.0)
    source.objects.access(Accessed(packed(1)), 1.0)
    assert source.only()[:4] == ("disk", 0, 0, 0)
    assert source.only().flow == ObjectFlow(unknown_accesses=3)


def test_objects_beyond_the_limit_are_counted_and_known_no_further() -> None:
    source = Source(most=2)
    source.objects.store(store(1, 2, 3), 1.0)
    source.objects.store(store(2, 4), 1.0)
    source.objects.access(Accessed(packed(3, 4, 2)), 2.0)
    found = source.only()
    assert found[2:4] == (2, 2 * MIB)
    assert (found.flow.unlisted_objects, found.flow.unknown_accesses, found.flow.accesses) == (2, 2, 1)
    source.objects.remove("cpu", 0, packed(1))
    source.restored()
    source.objects.store(store(3), 3.0)
    assert source.only().objects == 2


def test_a_capacity_is_of_a_medium_until_another_is_declared() -> None:
    source = Source()
    source.objects.declared(Capacity("cpu", 5))
    source.objects.declared(Capacity("disk", 6))
    source.objects.declared(Capacity("tape", 6))
    source.objects.declared(Capacity("one too many", 7))
    source.objects.store(store(1), 1.0)
    assert source.only().capacity == 5
    source.objects.declared(Capacity("cpu", 0))
    source.restored()
    assert source.only().capacity == 0
    assert source.head.capacity_bytes == {"cpu": 0, "disk": 6, "tape": 6}


def test_no_figure_grows_beyond_what_tables_and_checkpoints_hold() -> None:
    source = Source()
    most = 2**63 - 1
    for number in range(4):
        source.objects.store(Stored(packed(number), 2**32 - 1, medium="cpu", size_bytes=most), 1.0)
        source.objects.access(Accessed(packed(*range(number + 1)), hits=True), 2.0)
    flow = source.only().flow
    assert source.only().size == flow.stored_bytes == flow.accessed_bytes == flow.hit_bytes == most
    assert len(flow.needed_hist) <= 64
    source.restored()
    assert source.only().flow == flow


def test_the_order_of_uses_survives_being_numbered_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    class Small(Recency):
        def __init__(self, uses: int = 0) -> None:
            super().__init__(uses)
            self.room = uses + 3
            self._sums = [0] * (self.room + 1)

    def needed() -> list[list[int]]:
        source = Source()
        for number in range(40):
            source.objects.store(store(number % 13, size=(number % 5 + 1) * MIB), 1.0)
            source.objects.access(Accessed(packed(number * 7 % 13, number % 3)), 1.0)
            source.objects.remove("cpu", 0, packed(number * 5 % 17))
        return [source.only().flow.needed_hist]

    expected = needed()
    monkeypatch.setattr(order, "Recency", Small)
    assert needed() == expected
    assert sum(expected[0]) > 30
