"""Kafka as lists: partitions with offsets, transactions, fencing, groups' offsets, retention, compaction.

`tests/simulation/contract` runs the same cases over this and over the real broker.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aiokafka.errors import OffsetOutOfRangeError, ProducerFenced

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(slots=True)
class Entry:
    """What is at an offset: a record, or the marker at the end of a transaction."""

    offset: int
    timestamp: int
    """Milliseconds since the epoch."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()
    marker: bool = False
    aborted: bool = False
    late: bool = False
    """It was on its way when its writer was killed: whoever came next may have looked before it arrived."""


@dataclass(slots=True)
class Partition:
    """One log."""

    begin: int = 0
    end: int = 0
    entries: list[Entry] = field(default_factory=list)
    removed: list[Entry] = field(default_factory=list)
    """What retention took: nobody but the judge sees it."""
    open: dict[str, int] = field(default_factory=dict)
    """First offsets of open transactions, by their ids."""

    @property
    def stable(self) -> int:
        """Readers of committed records get no further."""
        return min([*self.open.values(), self.end])

    def first_at(self, offset: int) -> int:
        """Return the place in `entries` of the first one at an offset or behind it."""
        return bisect_left(self.entries, offset, key=_offset)


def _offset(entry: Entry) -> int:
    return entry.offset


@dataclass(slots=True)
class Transaction:
    """What a transactional id has under way."""

    places: dict[Place, list[Entry]] = field(default_factory=dict)
    offsets: dict[tuple[str, Place], tuple[int, str]] = field(default_factory=dict)
    number: int = 0


class Broker:
    """All topics of one cluster."""

    def __init__(self, topics: Mapping[str, int], clock: Callable[[], float]) -> None:
        """`topics`: numbers of partitions by name. `clock` gives seconds since the epoch."""
        self.topics = dict(topics)
        self.log = {(name, number): Partition() for name, count in topics.items() for number in range(count)}
        self.committed: dict[tuple[str, Place], tuple[int, str]] = {}
        """Offset and note by group and partition."""
        self.later: Callable[[float, Callable[[], None]], None] = lambda seconds, call: None
        """Calls something after so many seconds."""
        self.waiting: dict[str, list[Callable[[], None]]] = {name: [] for name in topics}
        """Whom to tell, once, that there is more to read of a topic."""
        self._clock = clock
        self._epochs: dict[str, int] = {}
        self._open: dict[str, Transaction] = {}
        self._transactions = 0

    # Writing

    def append(
        self,
        place: Place,
        records: Iterable[tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]],
        *,
        late: bool = False,
    ) -> list[Entry]:
        """Append (key, value, headers); return what became of them."""
        log, now = self.log[place], int(self._clock() * 1000)
        added = [
            Entry(log.end + at, now, key, value, headers, late=late)
            for at, (key, value, headers) in enumerate(records)
        ]
        log.entries += added
        log.end += len(added)
        self._tell(place[0])
        return added

    def _tell(self, topic: str) -> None:
        waiting, self.waiting[topic] = self.waiting[topic], []
        for tell in waiting:
            tell()

    def init(self, transactional_id: str) -> int:
        """Return the epoch of a new owner; what the former one left open is aborted."""
        self._end(transactional_id, commit=False)
        self._epochs[transactional_id] = epoch = self._epochs.get(transactional_id, -1) + 1
        return epoch

    def append_in(
        self,
        transactional_id: str,
        epoch: int,
        place: Place,
        key: bytes | None,
        value: bytes | None,
        *,
        timeout: float = 60.0,
    ) -> Entry:
        """Append a record in a transaction. Raises ProducerFenced."""
        transaction = self._under_way(transactional_id, epoch, timeout)
        [entry] = self.append(place, [(key, value, ())])
        transaction.places.setdefault(place, []).append(entry)
        self.log[place].open.setdefault(transactional_id, entry.offset)
        return entry

    def offset_in(
        self,
        transactional_id: str,
        epoch: int,
        group: str,
        place: Place,
        offset: int,
        note: str,
        *,
        timeout: float = 60.0,
    ) -> None:
        """Let a group's offset count if the transaction does. Raises ProducerFenced."""
        transaction = self._under_way(transactional_id, epoch, timeout)
        transaction.offsets[group, place] = (offset, note)

    def end(self, transactional_id: str, epoch: int, *, commit: bool) -> None:
        """End the transaction. Raises ProducerFenced."""
        self._require(transactional_id, epoch)
        self._end(transactional_id, commit=commit)

    def _require(self, transactional_id: str, epoch: int) -> None:
        if self._epochs.get(transactional_id) != epoch:
            raise ProducerFenced

    def _under_way(self, transactional_id: str, epoch: int, timeout: float) -> Transaction:
        self._require(transactional_id, epoch)
        transaction = self._open.get(transactional_id)
        if transaction is None:
            self._transactions += 1
            transaction = self._open[transactional_id] = Transaction(number=self._transactions)
            number = transaction.number
            self.later(timeout, lambda: self._abandon(transactional_id, number))
        return transaction

    def _abandon(self, transactional_id: str, number: int) -> None:
        """A transaction took too long: it is aborted, and its owner fenced."""
        transaction = self._open.get(transactional_id)
        if transaction is not None and transaction.number == number:
            self.init(transactional_id)

    def _end(self, transactional_id: str, *, commit: bool) -> None:
        transaction = self._open.pop(transactional_id, None)
        if transaction is None:
            return
        for place, entries in transaction.places.items():
            log = self.log[place]
            for entry in entries:
                entry.aborted = not commit
            del log.open[transactional_id]
            log.entries.append(Entry(log.end, int(self._clock() * 1000), None, None, marker=True))
            log.end += 1
            self._tell(place[0])
        if commit:
            self.committed |= transaction.offsets

    # Reading

    def fetch(self, place: Place, offset: int, *, committed: bool, most: int) -> tuple[list[Entry], int]:
        """Return records from an offset on, and the offset to go on at. Raises OffsetOutOfRangeError."""
        log = self.log[place]
        if not log.begin <= offset <= log.end:
            raise OffsetOutOfRangeError({place: offset})
        bound = log.stable if committed else log.end
        found: list[Entry] = []
        at, last = log.first_at(offset), len(log.entries)
        while at < last and len(found) < most and log.entries[at].offset < bound:
            entry = log.entries[at]
            if not entry.marker and not (committed and entry.aborted):
                found.append(entry)
            at += 1
        if at < last and log.entries[at].offset < bound:
            return found, log.entries[at].offset
        return found, max(offset, bound)

    # What else becomes of records

    def retain(self, place: Place, begin: int) -> None:
        """Let go of everything before an offset."""
        log = self.log[place]
        log.begin = max(log.begin, min(begin, log.stable))
        log.removed += log.entries[: log.first_at(log.begin)]
        del log.entries[: log.first_at(log.begin)]

    def compact(self, place: Place, below: int) -> None:
        """Of what is before an offset, keep the newest values of keys; deletions and markers go."""
        log = self.log[place]
        below = min(below, log.stable)
        newest = {entry.key: entry.offset for entry in log.entries if not (entry.marker or entry.aborted)}
        log.entries = [
            entry
            for entry in log.entries
            if entry.offset >= below
            or (
                not (entry.marker or entry.aborted)
                and newest[entry.key] == entry.offset
                and entry.value is not None
            )
        ]
