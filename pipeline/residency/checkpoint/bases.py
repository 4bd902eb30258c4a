"""The base of one source: when it is due, and the records that it takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec

from pipeline.residency.checkpoint.entries import Snapshot, in_parts, snapshots
from pipeline.residency.limits import resident
from pipeline.residency.source import SourceResidency
from schemas.checkpoints import BASE, NO_BASE, BasePart, SourceBase, part_slot, slot_key

SHARE = 2.0
"""Changes between two bases, per resident block: more make a start slower, fewer mean more bases."""
MIN_CHANGES = 4096
"""Applying fewer again is faster than writing a base."""
MAX_SECONDS = 600.0
"""Longest time between two bases while any block changes: far less than the events topic keeps."""
BLOCKS_A_SECOND = 150.0
"""If too little changed, a base of n blocks waits n seconds divided by this: about 5 kB a second. A worker
that continues reads the events topic from the oldest base on: that of a small, hardly changing pool must be
young."""
MIN_SECONDS = 30.0
"""Shortest time between two bases if too little changed. Where no block changed, a base is a small record:
entries are not written again."""
HEAD_BYTES = 2 << 20
"""Most bytes of a head in one record."""

CheckpointRecord = tuple[bytes, bytes | None]
"""Key and value; None deletes the key."""

_encode = msgspec.msgpack.Encoder().encode


class SourceBases:
    """Writes the bases of one source.

    A base that takes several records may be written over several checkpoints. Only its last record makes it
    count; until then the base before it does.
    """

    def __init__(
        self, source: SourceResidency, base: SourceBase | None = None, written: Iterable[str | int] = ()
    ) -> None:
        """`base` is the one from which the source was restored, `written` the slots that the checkpoint
        topic has."""
        self.source = source
        self.lacks: int | None = None
        """Offset of the first record that the base in the checkpoint topic lacks; None if it lacks none."""
        self.number = base.number if base is not None else NO_BASE
        """Number of the base in the checkpoint topic."""
        self._lacks_then: int | None = None
        """As `lacks`, for the base that is being written."""
        self._parts = base.parts if base is not None and base.head is not None else None
        """How many parts that base has, if all of them hold entries."""
        self._written: set[str | int] = {*written}
        self._operations = source.pools.operations
        """`Pools.operations` when the last base was begun."""
        self._lacking_since: float | None = None
        """Wall clock of the first cut after `lacks`."""
        self._waiting: Iterator[CheckpointRecord] | None = None

    def changed(self, offset: int) -> None:
        """Note that the record at `offset` was applied to the source."""
        if self.lacks is None:
            self.lacks = offset
        if self._lacks_then is None:
            self._lacks_then = offset

    @property
    def begun(self) -> bool:
        """Whether some records of a base are still to come."""
        return self._waiting is not None

    @property
    def is_first(self) -> bool:
        """Whether the checkpoint topic has no base of the source."""
        return self.number == NO_BASE

    def due(self, now: float) -> bool:
        """Return whether to begin a base at wall clock `now`.

        The first one begins at once: without it, rows would show what cannot be restored any more if the
        events topic loses the records.
        """
        if self.lacks is None or self.begun:
            return False
        if self.is_first:
            return True
        # A clock that was set back must not delay it.
        since = now if self._lacking_since is None else min(now, self._lacking_since)
        self._lacking_since = since
        changes = self.source.pools.operations - self._operations
        if changes >= MIN_CHANGES and changes >= SHARE * resident(self.source.pools):
            return True
        is_small = not changes and self._parts is not None
        wait = MIN_SECONDS if is_small else max(MIN_SECONDS, resident(self.source.pools) / BLOCKS_A_SECOND)
        return now - since >= min(wait, MAX_SECONDS)

    def begin(self, next_offset: int) -> None:
        """Begin the next base: the present state, which has all records before `next_offset`."""
        pools = self.source.pools
        pools.settle()
        head = _encode(self.source.head)
        same = not self.begun and pools.operations == self._operations
        if self._parts is not None and same and len(head) <= HEAD_BYTES:
            self._waiting = self._head_alone(next_offset, self._parts, head)
        else:
            found = [*chain.from_iterable(map(snapshots, pools.counted))]
            self._waiting = self._records(next_offset, self.number + 1, head, found)
        self._operations = pools.operations
        self._lacks_then = None
        self._lacking_since = None

    def take(self) -> CheckpointRecord | None:
        """Return the next record of the base that was begun; None after its last one."""
        assert self._waiting is not None
        record = next(self._waiting, None)
        if record is None:
            self._waiting = None
        return record

    def nothing(self) -> list[CheckpointRecord]:
        """Return the records that delete all keys of the source."""
        return [(self._key(slot), None) for slot in sorted(self._written, key=str)]

    def _records(
        self, next_offset: int, number: int, head: bytes, pools: Sequence[Snapshot]
    ) -> Iterator[CheckpointRecord]:
        pieces = [head[start : start + HEAD_BYTES] for start in range(0, len(head), HEAD_BYTES)]
        is_large = len(pieces) > 1
        parts = chain(
            (BasePart(number, piece) for piece in pieces if is_large),
            (BasePart(number, pools=entries) for entries in in_parts(pools)),
        )
        kept: set[str | int] = {BASE}
        for at, part in enumerate(parts):
            slot = part_slot(number, at)
            kept.add(slot)
            self._written.add(slot)
            yield self._key(slot), _encode(part)
        self._parts = None if is_large else len(kept) - 1
        self.number = number
        self._written.add(BASE)
        yield self._base(next_offset, len(kept) - 1, b"" if is_large else head)
        for left in sorted(self._written - kept, key=str):
            yield self._key(left), None
        self._written = kept

    def _head_alone(self, next_offset: int, parts: int, head: bytes) -> Iterator[CheckpointRecord]:
        yield self._base(next_offset, parts, head)

    def _base(self, next_offset: int, parts: int, head: bytes) -> CheckpointRecord:
        """Return the record that makes a base count."""
        self.lacks = self._lacks_then
        whole: Any = msgspec.Raw(head) if head else None
        return self._key(BASE), _encode(SourceBase(next_offset, self.number, parts, whole))

    def _key(self, slot: str | int) -> bytes:
        return slot_key(self.source.head.replica, self.source.head.dp_rank, slot)
