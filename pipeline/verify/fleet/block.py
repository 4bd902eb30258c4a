"""All that is known of one block of a shard."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.verify.fleet.changes import Space
from pipeline.verify.fleet.parsed import Chain
from pipeline.verify.fleet.shown import Shown
from pipeline.verify.keys import SourceId


class Loss(NamedTuple):
    """One block that one source lost."""

    number: int
    evicted: bool
    """Else it was cleared."""
    received: bool
    """Whether the source received KV when the block came."""
    at: float
    session_number: int
    """Number of the source's session."""
    stored: int | None
    """Tokens stored in the pool before."""


class Block:
    """A block that somebody holds, or is remembered to have lost."""

    __slots__ = (
        "chain",
        "counted",
        "hash",
        "last_evicted",
        "losses",
        "owners",
        "received",
        "receivers",
        "sizes",
        "sources",
        "space",
    )

    def __init__(self, space: Space, block_hash: int) -> None:
        self.space = space
        self.hash = block_hash
        self.sources: dict[SourceId, dict[str, bool]] = {}
        """Media of each owner, and whether removals are announced there."""
        self.owners: dict[str, int] = {}
        """How many sources hold it, by medium."""
        self.receivers: set[SourceId] = set()
        """Owners that received KV when the block came."""
        self.received: dict[str, int] = {}
        """How many of these hold it, by medium."""
        self.sizes: dict[str, int] = {}
        """Tokens, by medium, as announced by the first owner there."""
        self.losses: dict[SourceId, Loss] = {}
        """The latest of each source that lost it, as far as they are remembered."""
        self.last_evicted = 0.0
        """When anybody last evicted it, if that is remembered."""
        self.chain: Chain | None = None
        """As given by the first fill on a GPU that knew it."""
        self.counted: tuple[Shown, int, int, int] | None = None
        """What it adds to the figures of its prefix: (figures, owners, size, depth)."""

    def held_by_others(self, source: SourceId, *, receivers: bool = True) -> bool:
        """Return whether another source certainly holds the block; without `receivers`, one that received no
        KV when it came."""
        return any(
            other != source and True in media.values() and (receivers or other not in self.receivers)
            for other, media in self.sources.items()
        )

    def counted_owners(self, medium: str) -> int:
        """Return how many owners count: one less if both sources that receive KV and others hold it."""
        owners = self.owners.get(medium, 0)
        both = 0 < self.received.get(medium, 0) < owners
        return owners - both

    def known_to(self, source: SourceId) -> bool:
        """Return whether the block was stored before: by the source itself, or certainly by another."""
        return bool(self.sources.get(source) or self.losses) or self.held_by_others(source)

    def certain(self) -> bool:
        """Return whether any source holds it on a GPU, or where removals are announced."""
        if not self.sources:
            return False
        return any("gpu" in media or True in media.values() for media in self.sources.values())


class Blocks:
    """The blocks of a shard."""

    def __init__(self) -> None:
        self._of: dict[Space, dict[int, Block]] = {}

    def of(self, space: Space) -> dict[int, Block]:
        """Return the blocks of a hash domain and group, by hash."""
        return self._of.setdefault(space, {})

    def forget_if_unused(self, block: Block) -> None:
        """Forget a block that nobody holds and nobody is remembered to have lost."""
        if not block.sources and not block.losses:
            self._of[block.space].pop(block.hash, None)
