"""The state of a source as checkpoint records: the head, what changed, and bases of everything in turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

import msgspec

from pipeline.residency.checkpoint import entries
from pipeline.residency.checkpoint.head_pieces import WHOLE_BYTES, HeadPieces
from pipeline.residency.counting.block_table import PLACES
from pipeline.residency.source import SourceResidency
from schemas.checkpoints import (
    HEAD,
    NO_BASE,
    BaseRange,
    PoolsRecord,
    base_slot,
    head_piece_slot,
    slot_key,
)

BASE_ENTRIES = 65_536
"""Of a base, more or less: 26 bytes each."""
_MOST_DELTAS = 384
"""Before there is a base of every range: a start reads them all."""
_DELTA_SHARE = 2
"""Entries in deltas for each one that is resident: more cost a start more, fewer cost more bases."""
_SPARED_ENTRIES = 4096
"""Deltas of so few entries are not worth a base."""

_encode = msgspec.msgpack.Encoder().encode


class SourceSnapshots:
    """Writes the checkpoints of one source.

    Each checkpoint holds the head and a delta of what changed. Once the deltas have grown to twice what is
    resident, every range of places has got a new base: the older deltas do not count any more.
    """

    def __init__(
        self, source: SourceResidency, slots: Sequence[int] = (), written: Iterable[str | int] = ()
    ) -> None:
        """`slots` are those of the deltas that a restored source rests on, oldest first; `written` those that
        have any record in the log."""
        self._source = source
        self._pieces = HeadPieces()
        self._written = {*written}
        head = source.head
        if not head.bases:
            head.bases = [BaseRange(0, NO_BASE, 0)]
        self._bases = head.bases
        self._deltas = deque(enumerate(slots, head.last_delta - len(slots) + 1))
        """Numbers and slots of the deltas that count."""
        self._free = sorted(set(range(1, max(slots, default=0))) - set(slots))
        """Slots below theirs, as a heap."""
        self._entries = 0
        """Entries in the deltas written since the last base, by this process."""
        self._last_based = max(each.delta for each in self._bases)
        """Number of the last delta when the last base was written."""

    def deltas(self) -> list[tuple[bytes, bytes]]:
        """Return the (key, value) records of what changed since the last call."""
        head, pools = self._source.head, self._source.pools
        pools.settle()
        parts = [(pool, *pool.take_unsaved()) for pool in pools.counted]
        parts = [(pool, gone, changed) for pool, gone, changed in parts if len(gone) or len(changed)]
        if not parts:
            return []
        self._entries += sum(len(gone) + len(changed) for _, gone, changed in parts)
        records = []
        for delta in entries.in_records(parts):
            head.last_delta += 1
            before, head.last_slot = head.last_slot, self._free_slot()
            self._deltas.append((head.last_delta, head.last_slot))
            record = PoolsRecord(delta, head.last_delta, before)
            records.append((self._key(head.last_slot), _encode(record)))
        return records

    def _free_slot(self) -> int:
        """Return the lowest one: in the log there are never more deltas than once counted together."""
        return heappop(self._free) if self._free else len(self._deltas) + 1

    @property
    def wants_base(self) -> bool:
        """Whether the deltas have become large, or many, for what is resident."""
        ranges, deltas = len(self._bases), self._source.head.last_delta - self._last_based
        return (
            self._entries * ranges > _DELTA_SHARE * self._resident() + _SPARED_ENTRIES
            or deltas * ranges > _MOST_DELTAS
        )

    @property
    def deltas_kept(self) -> int:
        """How many deltas a restored state rests on."""
        return len(self._deltas)

    def base(self) -> list[tuple[bytes, bytes]]:
        """Return the (key, value) records of the base that is due: of the range with the oldest one.

        It holds what `deltas` has returned so far.
        """
        head, pools = self._source.head, self._source.pools
        start = min(self._bases, key=lambda each: (each.delta, each.start)).start
        resident = self._resident()
        end = min(PLACES, start + max(1, PLACES * BASE_ENTRIES // max(1, resident)))
        if PLACES - end < (end - start) // 4:
            end = PLACES
        found = [(pool, pool.table.between(start, end)) for pool in pools.counted]
        while sum(len(part) for _, part in found) > entries.RECORD_ENTRIES:
            # Hashes that somebody chose may lie close together.
            end = start + (end - start) // 2
            found = [(pool, pool.table.between(start, end)) for pool in pools.counted]
        before = {each.base for each in self._bases}
        self._bases[:] = _replaced(self._bases, start, end, head.last_delta)
        kept = {each.base for each in self._bases}
        number = next(number for number in range(len(kept)) if number not in kept)
        self._bases[:] = [
            BaseRange(start, number, each.delta) if each.start == start else each for each in self._bases
        ]
        self._entries, self._last_based = 0, head.last_delta
        oldest = min(each.delta for each in self._bases)
        while self._deltas and self._deltas[0][0] <= oldest:
            heappush(self._free, self._deltas.popleft()[1])
        parts = [entries.packed_entries(pool, part) for pool, part in found if len(part)]
        records = [(self._key(base_slot(number)), _encode(PoolsRecord(parts, head.last_delta)))]
        # Nothing keeps their room in the log.
        records += [(self._key(base_slot(free)), b"") for free in before - kept - {number, NO_BASE}]
        return records

    def head(self) -> list[tuple[bytes, bytes]]:
        """Return the (key, value) records of the head, which goes with what was returned before."""
        head = _encode(self._source.head)
        if len(head) <= WHOLE_BYTES:
            return [(self._key(HEAD), head)]
        order, written = self._pieces.changed(head)
        return [
            *((self._key(head_piece_slot(number)), piece) for number, piece in written),
            (self._key(HEAD), _encode(order)),
        ]

    def nothing(self) -> list[tuple[bytes, None]]:
        """Return the (key, no value) records after which the log has nothing of the source."""
        return [(self._key(slot), None) for slot in sorted(self._written, key=str)]

    def _resident(self) -> int:
        return sum(pool.table.blocks for pool in self._source.pools.counted)

    def _key(self, slot: str | int) -> bytes:
        self._written.add(slot)
        return slot_key(self._source.head.replica, self._source.head.dp_rank, slot)


def _replaced(ranges: list[BaseRange], start: int, end: int, delta: int) -> list[BaseRange]:
    """Return the ranges with one from `start`, where one of them begins, to `end` instead of what was there.

    Its base has no number yet.
    """
    ends = [each.start for each in ranges[1:]] + [PLACES]
    before = [each for each in ranges if each.start < start]
    behind = [
        BaseRange(max(each.start, end), each.base, each.delta)
        for each, ends_at in zip(ranges, ends, strict=True)
        if ends_at > end
    ]
    return [*before, BaseRange(start, NO_BASE, delta), *behind]
