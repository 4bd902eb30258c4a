"""Small numbers for sources, hash domains and media, so that tables need no names.

All of them are kept in the head of the checkpoint; the classes here find them by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

import numpy as np

from pipeline.errors import TooManySources
from pipeline.fleet.kernel.keys import constant_of
from pipeline.fleet.kernel.tables import I64, MEDIA_BITS, STORE_ONLY_BIT
from schemas.fleet_checkpoints import FleetHead, FleetLineage, FleetSource, FleetSpace

MAX_SOURCES = 1 << 16
MAX_LINEAGES = 1 << 16


@dataclass(slots=True, frozen=True)
class Space:
    """A hash domain, model and group: hashes compare only inside one.

    A domain belongs to one model. If a source names another model, that is a space of its own, so that no
    source can rename the figures of others.
    """

    number: int
    hash_domain: str
    model: str
    group_idx: int
    constant: int
    salt: int
    """Separates it from spaces that hash the same tokens to the same blocks; follows from its name."""


class Media:
    """Bits of the media a source may hold a block on; the GPU's is 0."""

    def __init__(self, bits: dict[str, int]) -> None:
        """`bits` is that of the head: name, with a suffix where removals are not announced, to bit."""
        self.bits = bits
        bits.setdefault("gpu", 0)

    def of(self, medium: str, *, store_only: bool) -> tuple[int, str]:
        """Return the bit, and the medium under whose name it counts.

        All media from the eighth on, or from the sixth store-only one on, share one bit and count as one, as
        pairs do not tell them apart. A GPU is never store-only.
        """
        store_only = store_only and medium != "gpu"
        suffix = "/store-only" if store_only else ""
        bit = self.bits.get(medium + suffix)
        if bit is None:
            low, high = (STORE_ONLY_BIT, MEDIA_BITS - 1) if store_only else (0, STORE_ONLY_BIT - 1)
            taken = {bit for bit in self.bits.values() if low <= bit <= high}
            bit = next((bit for bit in range(low, high) if bit not in taken), high)
            self.bits[medium + suffix] = bit
        first = next(name for name, of in self.bits.items() if of == bit)
        return bit, first.removesuffix(suffix)


@dataclass(slots=True, frozen=True)
class Lineage:
    """What the hashes of a chain of blocks depend on apart from its tokens."""

    number: int
    space: Space
    lora: str
    """Empty without one."""


class Lineages:
    """Lineages by name and number."""

    def __init__(self, known: list[FleetLineage], spaces: Spaces) -> None:
        """`known` is that of the head."""
        self.by_name: dict[tuple[int, str], Lineage] = {}
        self.by_number: list[Lineage] = []
        self._known = known
        for each in known:
            self._add(spaces.by_number[each.space], each.lora)

    def of(self, space: Space, lora: str = "") -> Lineage:
        """Return the lineage, adding it if it is new; beyond MAX_LINEAGES, the last one."""
        lineage = self.by_name.get((space.number, lora))
        if lineage is None:
            if len(self.by_number) == MAX_LINEAGES:
                return self.by_number[-1]
            self._known.append(FleetLineage(space.number, lora))
            lineage = self._add(space, lora)
        return lineage

    def _add(self, space: Space, lora: str) -> Lineage:
        lineage = Lineage(len(self.by_number), space, lora)
        self.by_number.append(lineage)
        self.by_name[space.number, lora] = lineage
        return lineage


class Sources:
    """Sources by name and by number; numbers are reused."""

    def __init__(self, by_number: list[FleetSource | None]) -> None:
        """`by_number` is that of the head."""
        self.by_number = by_number
        self.by_name = {(each.replica, each.dp_rank): each for each in by_number if each is not None}
        self._free = [number for number, source in enumerate(by_number) if source is None]
        self._ranks: I64 | None = None

    def of(self, replica: str, dp_rank: int) -> FleetSource:
        """Return the source, a new one if it has no number yet. Raises TooManySources."""
        source = self.by_name.get((replica, dp_rank))
        if source is None:
            if self._free:
                number = self._free.pop()
            else:
                number = len(self.by_number)
                if number == MAX_SOURCES:
                    raise TooManySources(MAX_SOURCES)
                self.by_number.append(None)
            source = FleetSource(number, replica, dp_rank)
            self.by_number[number] = self.by_name[replica, dp_rank] = source
            self._ranks = None
        return source

    def forget(self, source: FleetSource) -> None:
        """Free a source's number."""
        del self.by_name[source.replica, source.dp_rank]
        self.by_number[source.number] = None
        self._free.append(source.number)
        self._ranks = None

    def ranks(self) -> I64:
        """Return for each number its source's rank by name, from 1; 0 for numbers without a source."""
        if self._ranks is None:
            self._ranks = np.zeros(len(self.by_number), np.int64)
            for rank, name in enumerate(sorted(self.by_name), 1):
                self._ranks[self.by_name[name].number] = rank
        return self._ranks


class Spaces:
    """Hash domains and groups by name and number."""

    def __init__(self, known: list[FleetSpace]) -> None:
        """`known` is that of the head."""
        self.by_name: dict[tuple[str, str, int], Space] = {}
        self.by_number: list[Space] = []
        self._known = known
        for each in known:
            self._add(each)

    def of(self, hash_domain: str, model: str, group_idx: int) -> Space:
        """Return the space, adding it if it is new."""
        space = self.by_name.get((hash_domain, model, group_idx))
        if space is None:
            self._known.append(FleetSpace(hash_domain, model, group_idx))
            space = self._add(self._known[-1])
        return space

    def _add(self, known: FleetSpace) -> Space:
        number = len(self.by_number)
        domain, group_idx = known.hash_domain, known.group_idx
        salt = crc32(domain.encode()) + group_idx
        space = Space(number, domain, known.model, group_idx, constant_of(number), salt)
        self.by_number.append(space)
        self.by_name[domain, known.model, group_idx] = space
        return space


class Names(NamedTuple):
    """What the tables of a shard refer to by number."""

    sources: Sources
    spaces: Spaces
    lineages: Lineages
    media: Media


def names_in(head: FleetHead) -> Names:
    """Return what a head names; what is added later is added to the head, too."""
    spaces = Spaces(head.spaces)
    return Names(Sources(head.sources), spaces, Lineages(head.lineages, spaces), Media(head.media))
