"""Small numbers for sources, hash domains, media and windows' cells, so that tables need no names."""

from __future__ import annotations

from dataclasses import dataclass, field
from zlib import crc32

from pipeline.errors import TooManySources
from pipeline.fleet.index import STORE_ONLY_BIT
from pipeline.fleet.keys import constant_of
from pipeline.residency.media import STORE_ONLY

MAX_SOURCES = 1 << 16
MAX_LINEAGES = 1 << 16
_LAST_BIT = 14


@dataclass(slots=True)
class SourceFacts:
    """What is known of one source apart from its blocks."""

    number: int
    replica: str
    dp_rank: int
    incarnation: int = 0
    life: int = 0
    """Counts incarnations."""
    trust: int = 0
    """Place in TRUST_ORDER, as of its last record."""
    unsure_until: float = 0.0
    """Event time up to which something it lost may not be known."""
    seen: float = 0.0
    """Latest event time."""
    spaces: set[int] = field(default_factory=set)
    """Hash domains and groups it had blocks of."""


@dataclass(slots=True, frozen=True)
class Space:
    """A hash domain and group: hashes compare only inside one."""

    number: int
    hash_domain: str
    model: str
    group_idx: int
    constant: int
    salt: int
    """Keeps it apart from others that hash the same tokens to the same blocks; follows from its name."""


class Media:
    """Bits of the media a source may hold a block on; the GPU's is 0."""

    def __init__(self) -> None:
        self.bits: dict[str, int] = {"gpu": 0}
        """Name, with a mark where removals are not announced, to bit."""

    def bit(self, medium: str, *, store_only: bool) -> int:
        """Return the bit; media beyond the seventh of a kind share one."""
        store_only = store_only or medium in STORE_ONLY
        name = f"{medium}/store-only" if store_only else medium
        bit = self.bits.get(name)
        if bit is None:
            low, high = (STORE_ONLY_BIT, _LAST_BIT) if store_only else (0, STORE_ONLY_BIT - 1)
            taken = {bit for bit in self.bits.values() if low <= bit <= high}
            bit = self.bits[name] = next((bit for bit in range(low, high) if bit not in taken), high)
        return bit


@dataclass(slots=True, frozen=True)
class Lineage:
    """What the hashes of a chain of blocks depend on besides its tokens."""

    number: int
    space: Space
    lora: str
    """Empty without one."""


class Lineages:
    """Lineages by name and number."""

    def __init__(self) -> None:
        self.by_name: dict[tuple[int, str], Lineage] = {}
        self.by_number: list[Lineage] = []

    def of(self, space: Space, lora: str = "") -> Lineage:
        """Return the lineage, a new one when it is the first time; beyond MAX_LINEAGES the last one."""
        lineage = self.by_name.get((space.number, lora))
        if lineage is None:
            if len(self.by_number) == MAX_LINEAGES:
                return self.by_number[-1]
            lineage = self.by_name[space.number, lora] = Lineage(len(self.by_number), space, lora)
            self.by_number.append(lineage)
        return lineage


class Sources:
    """Sources by name and by number; numbers are used again."""

    def __init__(self) -> None:
        self.by_name: dict[tuple[str, int], SourceFacts] = {}
        self.by_number: list[SourceFacts | None] = []
        self._free: list[int] = []

    def of(self, replica: str, dp_rank: int) -> SourceFacts:
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
            source = SourceFacts(number, replica, dp_rank)
            self.put(source)
        return source

    def put(self, source: SourceFacts) -> None:
        """Take a source with the number it has."""
        while len(self.by_number) <= source.number:
            self._free.append(len(self.by_number))
            self.by_number.append(None)
        if source.number in self._free:
            self._free.remove(source.number)
        self.by_number[source.number] = source
        self.by_name[source.replica, source.dp_rank] = source

    def forget(self, source: SourceFacts) -> None:
        """Give a source's number back."""
        del self.by_name[source.replica, source.dp_rank]
        self.by_number[source.number] = None
        self._free.append(source.number)


class Spaces:
    """Hash domains and groups by name and number."""

    def __init__(self) -> None:
        self.by_name: dict[tuple[str, int], Space] = {}
        self.by_number: list[Space] = []

    def of(self, hash_domain: str, model: str, group_idx: int) -> Space:
        """Return the space, a new one when it is the first time."""
        space = self.by_name.get((hash_domain, group_idx))
        if space is None:
            number = len(self.by_number)
            salt = crc32(hash_domain.encode()) + group_idx
            space = Space(number, hash_domain, model, group_idx, constant_of(number), salt)
            self.by_name[hash_domain, group_idx] = space
            self.by_number.append(space)
        return space
