"""Objects of one source, which are blocks whose bytes are known: what is held, and how it was used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pipeline.verify.replica.flow import count_in, count_seconds
from pipeline.verify.replica.shelves import Name, Shelves
from schemas.events import Accessed, Stored
from schemas.hashes import unpack_hashes

LARGEST = 2**63 - 1
"""Largest value of any figure of a row."""
MEBIBYTE = 2**20
LAST_ELEMENT = 63
Place = tuple[str, int]
"""Medium and group."""


@dataclass
class Uses:
    """The figures of `schemas.rows.ObjectsRow` that count what happened."""

    stored_objects: int = 0
    stored_bytes: int = 0
    accesses: int = 0
    accessed_tokens: int = 0
    accessed_bytes: int = 0
    hits: int = 0
    hit_tokens: int = 0
    hit_bytes: int = 0
    first_accesses: int = 0
    unknown_accesses: int = 0
    unlisted_objects: int = 0
    uses_hist: list[int] = field(default_factory=list)
    reuse_hist: list[int] = field(default_factory=list)
    needed_hist: list[int] = field(default_factory=list)


@dataclass
class Object:
    """An object that is held."""

    size: int
    tokens: int
    used_at: float
    accesses: int = 0


class ObjectsRecount:
    """Objects of a source by the rules of docs/figures.md."""

    def __init__(self, most: int, most_pools: int) -> None:
        self._most = most
        self._most_pools = most_pools
        self.capacities: dict[str, int] = {}
        """By medium, as declared last."""
        self.uses: dict[Place, Uses] = {}
        """Of the open window, for every place that ever had objects."""
        self._there: dict[str, dict[Name, Object]] = {}
        """Objects by medium, then by group and hash."""
        self._by_use: dict[str, Shelves] = {}
        """By medium: the order in which they were last used."""

    def declared(self, medium: str, capacity: int) -> None:
        """Note the capacity of a medium, unless it is one medium too many."""
        if medium in self.capacities or len(self.capacities) < self._most_pools:
            self.capacities[medium] = capacity

    def stored(self, event: Stored, at: float) -> None:
        """Add the objects of a store that says their bytes."""
        hashes = unpack_hashes(event.hashes)
        if not event.size_bytes or not hashes:
            return
        there = self._there.setdefault(event.medium, {})
        by_use = self._by_use.setdefault(event.medium, Shelves())
        uses = self.uses.setdefault((event.medium, event.group_idx), Uses())
        size = event.size_bytes // len(hashes)
        for one in hashes:
            name = (event.group_idx, one)
            before = there.get(name)
            if before is None and sum(map(len, self._there.values())) >= self._most:
                uses.unlisted_objects += 1
                continue
            if before is None:
                uses.stored_objects += 1
                uses.stored_bytes = min(LARGEST, uses.stored_bytes + size)
            else:
                by_use.take(name)
            there[name] = Object(size, event.block_size, at, 0 if before is None else before.accesses)
            by_use.put(name, size)

    def accessed(self, event: Accessed, at: float) -> None:
        """Count uses; if the event names no medium, on the first one of the group that has the object."""
        if event.medium is not None and len(self.uses) < self._most_pools:
            self.uses.setdefault((event.medium, event.group_idx), Uses())
            self._there.setdefault(event.medium, {})
        media = [
            medium
            for medium, group in sorted(self.uses)
            if group == event.group_idx and (event.medium is None or event.medium == medium)
        ]
        for one in unpack_hashes(event.hashes) if media else ():
            name = (event.group_idx, one)
            medium = next((each for each in media if name in self._there[each]), None)
            if medium is None:
                self.uses[media[0], event.group_idx].unknown_accesses += 1
            else:
                self._used(self.uses[medium, event.group_idx], medium, name, at, hit=event.hits)

    def _used(self, uses: Uses, medium: str, name: Name, at: float, *, hit: bool) -> None:
        found, by_use = self._there[medium][name], self._by_use[medium]
        needed = by_use.size_from(name)
        by_use.take(name)
        by_use.put(name, found.size)
        enough = 0
        while needed > MEBIBYTE * 2**enough and enough < LAST_ELEMENT:
            enough += 1
        count_in(uses.needed_hist, enough, 1)
        count_seconds(uses.reuse_hist, at - found.used_at)
        uses.accesses += 1
        uses.accessed_tokens = min(LARGEST, uses.accessed_tokens + found.tokens)
        uses.accessed_bytes = min(LARGEST, uses.accessed_bytes + found.size)
        if not found.accesses:
            uses.first_accesses += 1
        if hit:
            uses.hits += 1
            uses.hit_tokens = min(LARGEST, uses.hit_tokens + found.tokens)
            uses.hit_bytes = min(LARGEST, uses.hit_bytes + found.size)
        found.accesses += 1
        found.used_at = at

    def removed(self, medium: str, group: int, packed: bytes) -> None:
        """Remove objects, and count them by how often they were used."""
        for one in unpack_hashes(packed):
            found = self._there.get(medium, {}).pop((group, one), None)
            if found is not None:
                self._by_use[medium].take((group, one))
                element = 0
                while 2**element <= found.accesses:
                    element += 1
                count_in(self.uses[medium, group].uses_hist, element, 1)

    def cleared(self, medium: str | None = None, group: int | None = None) -> None:
        """Drop everything, of one medium or group where they are given."""
        for of_medium, there in self._there.items():
            if medium in (None, of_medium):
                for name in [name for name in there if group in (None, name[0])]:
                    del there[name]
                    self._by_use[of_medium].take(name)

    def window_began(self) -> None:
        """Count uses from zero."""
        for place in self.uses:
            self.uses[place] = Uses()

    def held(self) -> Iterator[tuple[Place, int, int]]:
        """Yield objects and bytes of every place."""
        for medium, group in self.uses:
            sizes = [one.size for (of_group, _), one in self._there[medium].items() if of_group == group]
            yield (medium, group), len(sizes), min(LARGEST, sum(sizes))
