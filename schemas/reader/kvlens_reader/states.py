"""What each replica holds, rebuilt from a topic. No IO, no clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple, get_args

from kvlens_reader.changes import BlockChange, Came, ResidencyChange, changes_of, residency_changes
from kvlens_reader.records.events import (
    Cleared,
    Closed,
    Event,
    EventsRecord,
    Removed,
    Stored,
    is_cleared,
    is_kept_once,
)
from kvlens_reader.records.hashes import unpack_hashes
from kvlens_reader.records.residency import ResidencyRecord

Source = tuple[str, int]
"""Replica and data-parallel rank."""
Pool = tuple[str, int]
"""Medium and KV-cache group."""
Held = dict[Pool, frozenset[int]]


class _Reached(NamedTuple):
    incarnation: int = 0
    seq: int = -1
    hash_domain: str = ""
    copied: bool = False
    """Whether a removal proved that what seemed to repeat others were copies."""


class Copies:
    """Counts the copies of each block by `events.v1`, as engines announce them.

    A batch counts once, however often it comes; a new session begins with an empty cache, but for media that
    outlive engines. What an engine announces again does not count again, where records say that it may do so,
    until a block leaves once more than it counted: then all that was announced again were copies. Blocks
    announced at two granularities are kept as announced (docs/exactness.md of kvlens).
    """

    def __init__(self, *, clear_all: bool = False) -> None:
        """`clear_all`: a clear that names no medium is of all where the engine's records do not say, as with
        `worker.clear_scope`."""
        self._clear_all = clear_all
        self._pools: defaultdict[Source, dict[Pool, Counter[int]]] = defaultdict(dict)
        self._again: defaultdict[Source, dict[Pool, Counter[int]]] = defaultdict(dict)
        """What seemed to repeat what is held."""
        self._reached: dict[Source, _Reached] = {}

    def apply(self, record: EventsRecord) -> Iterator[BlockChange]:
        """Give the changes of a record that were not applied before, each when it is applied."""
        source = (record.replica, record.dp_rank)
        reached = self._reached.get(source, _Reached())
        if record.incarnation < reached.incarnation:
            return
        if record.incarnation > reached.incarnation:
            self._again.pop(source, None)
            _end(self._pools[source], but_kept=record.hash_domain == reached.hash_domain)
            reached = self._reached[source] = _Reached(record.incarnation, -1, record.hash_domain)
        for batch in record.batches:
            if batch.seq is not None:
                reached = self._reached.get(source, reached)
                if batch.seq <= reached.seq:
                    continue
                self._reached[source] = reached._replace(seq=batch.seq)
            for event in batch.events:
                self._count(source, record, event)
                yield from changes_of(record, batch, event)

    def take(self, record: EventsRecord) -> None:
        """Apply a record, without the changes."""
        for _ in self.apply(record):
            pass

    def held(self, replica: str, dp_rank: int = 0) -> Held:
        """Return the blocks of a replica by medium and group."""
        pools = self._pools.get((replica, dp_rank), {})
        return {where: frozenset(copies) for where, copies in pools.items() if copies}

    def sources(self) -> list[Source]:
        """Return all that were heard of."""
        return sorted(self._reached)

    def _count(self, source: Source, record: EventsRecord, event: Event) -> None:
        pools, again = self._pools[source], self._again[source]
        if isinstance(event, Closed):
            _end(pools, but_kept=event.reason == "restarted")
        elif isinstance(event, Cleared):
            scope = event.medium
            if scope is None:
                scope = "" if record.clears_all or self._clear_all else "gpu"
            for medium, group in [*pools]:
                if is_cleared(medium, scope) and event.group_idx in (None, group):
                    del pools[medium, group]
                    again.pop((medium, group), None)
        elif isinstance(event, Stored | Removed):
            where = event.medium, event.group_idx
            copies = pools.setdefault(where, Counter())
            hashes = unpack_hashes(event.hashes)
            if isinstance(event, Removed):
                self._remove(source, where, hashes)
            elif record.one_copy or is_kept_once(event.medium):
                pools[where] |= Counter({*hashes})
            elif not self._reached[source].copied and _is_repeated(copies, hashes, record, event):
                again.setdefault(where, Counter()).update(hashes)
            else:
                copies.update(hashes)

    def _remove(self, source: Source, where: Pool, hashes: tuple[int, ...]) -> None:
        copies, again = self._pools[source][where], self._again[source]
        for one in hashes:
            if one not in copies and one in again.get(where, ()):
                copies.update(again.pop(where))
                self._reached[source] = self._reached[source]._replace(copied=True)
            if one in copies:
                copies[one] -= 1
                if not copies[one]:
                    del copies[one]


def _end(pools: dict[Pool, Counter[int]], *, but_kept: bool) -> None:
    """End a session; `but_kept`: another one goes on with what outlives engines."""
    for medium, group in [*pools]:
        if not (but_kept and is_kept_once(medium)):
            del pools[medium, group]


def _is_repeated(copies: Counter[int], hashes: tuple[int, ...], record: EventsRecord, event: Stored) -> bool:
    """Return whether a store repeats what is resident, as engines do that report all of a prompt again."""
    may = record.may_reannounce is True and "contradiction" not in record.remarks
    return may and event.parent is None and all(one in copies for one in hashes)


class Resident:
    """Keeps which blocks are where by `residency.v1`, as kvlens's worker counts them.

    Blocks that were filled before the topic begins are not known. Read committed records; with a client that
    cannot, what is held is right again with the next committed record of a partition.
    """

    def __init__(self) -> None:
        self._pools: defaultdict[Source, dict[Pool, set[int]]] = defaultdict(dict)

    def apply(self, record: ResidencyRecord) -> Iterator[ResidencyChange]:
        """Give the changes of a record, each when it is applied."""
        for change in residency_changes(record):
            pools = self._pools[change.replica, change.dp_rank]
            blocks = pools.setdefault((change.medium, change.group_idx), set())
            if change.kind in get_args(Came):
                blocks.add(change.hash)
            else:
                blocks.discard(change.hash)
            yield change

    def take(self, record: ResidencyRecord) -> None:
        """Apply a record, without the changes."""
        for _ in self.apply(record):
            pass

    def held(self, replica: str, dp_rank: int = 0) -> Held:
        """Return the blocks of a replica by medium and group."""
        pools = self._pools.get((replica, dp_rank), {})
        return {where: frozenset(blocks) for where, blocks in pools.items() if blocks}
