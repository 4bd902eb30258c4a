"""Which sources hold which blocks on which media, and how many hold the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pipeline.verify.fleet.changes import Block, Change, SourceId
from schemas.residency import FILLED


class RedundancyKey(NamedTuple):
    """What a row of `redundancy_10s` is about."""

    hash_domain: str
    model: str
    medium: str
    group_idx: int


@dataclass
class Redundancy:
    """The figures of such a row."""

    owners: Counter[int] = field(default_factory=Counter)
    """Distinct blocks by number of owners."""
    unique_tokens: int = 0
    physical_tokens: int = 0

    def between(self, least: int, most: float) -> int:
        """Return how many blocks have so many owners, both included."""
        return sum(blocks for owners, blocks in self.owners.items() if least <= owners <= most)

    def copy(self) -> Redundancy:
        """Return the figures as they are now."""
        return replace(self, owners=Counter(self.owners))


@dataclass
class Held:
    """A block that somebody holds."""

    sources: dict[SourceId, dict[str, bool]] = field(default_factory=dict)
    """Media of each owner, and whether removals are announced there."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Tokens, by medium, as the first owner there said."""

    def owners(self, medium: str) -> int:
        """Return how many sources hold it there."""
        return sum(medium in media for media in self.sources.values())


class Owners:
    """All blocks that are held, and the redundancy of every key under which one ever was."""

    def __init__(self) -> None:
        self.blocks: dict[Block, Held] = {}
        self.redundancy: dict[RedundancyKey, Redundancy] = {}
        self.blocks_of: Counter[SourceId] = Counter()
        """How many blocks each source holds, on whatever media."""

    def media(self, block: Block, source: SourceId) -> dict[str, bool]:
        """Return on what media a source holds a block."""
        return self.blocks[block].sources.get(source, {}) if block in self.blocks else {}

    def others(self, block: Block, source: SourceId) -> bool:
        """Return whether another source certainly holds the block."""
        held = self.blocks.get(block, Held())
        return any(any(media.values()) for other, media in held.sources.items() if other != source)

    def change(self, change: Change) -> RedundancyKey | None:
        """Note that a block came or left; return the key whose redundancy it changed."""
        if (change.medium in self.media(change.block, change.source)) == (change.kind == FILLED):
            return None
        block = change.block
        key = RedundancyKey(block.hash_domain, block.model, change.medium, block.group_idx)
        held = self.blocks.setdefault(block, Held())
        self._count(key, held, -1)
        if change.kind == FILLED:
            held.sizes.setdefault(change.medium, change.size)
            self.blocks_of[change.source] += change.source not in held.sources
            held.sources.setdefault(change.source, {})[change.medium] = change.announced
        else:
            del held.sources[change.source][change.medium]
            if not held.sources[change.source]:
                del held.sources[change.source]
                self.blocks_of[change.source] -= 1
        self._count(key, held, +1)
        if not held.sources:
            del self.blocks[block]
        elif not held.owners(change.medium):
            del held.sizes[change.medium]
        return key

    def _count(self, key: RedundancyKey, held: Held, times: int) -> None:
        """Add a block to the figures of a key, or take it off."""
        owners = held.owners(key.medium)
        if owners:
            size = held.sizes[key.medium]
            redundancy = self.redundancy.setdefault(key, Redundancy())
            redundancy.owners[owners] += times
            redundancy.unique_tokens += times * size
            redundancy.physical_tokens += times * owners * size
