"""Which sources hold which blocks on which media, and how many hold the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pipeline.verify.fleet.block import Block
from pipeline.verify.fleet.changes import Piece
from pipeline.verify.keys import SourceId
from schemas.residency import FILLS


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
    received_tokens: int = 0

    def between(self, least: int, most: float) -> int:
        """Return how many blocks have so many owners, both included."""
        return sum(blocks for owners, blocks in self.owners.items() if least <= owners <= most)

    def copy(self) -> Redundancy:
        """Return the figures as they are now."""
        return replace(self, owners=Counter(self.owners))


class Owners:
    """The redundancy of every key under which a block ever was held."""

    def __init__(self) -> None:
        self.redundancy: dict[RedundancyKey, Redundancy] = {}
        self.blocks_of: Counter[SourceId] = Counter()
        """How many blocks each source holds, on whatever media."""

    def of(self, piece: Piece) -> RedundancyKey:
        """Return the key whose redundancy the changes of a piece change."""
        space = piece.space
        key = RedundancyKey(space.hash_domain, space.model, piece.medium, space.group_idx)
        if key not in self.redundancy:
            self.redundancy[key] = Redundancy()
        return key

    def change(self, block: Block, piece: Piece, redundancy: Redundancy, kind: int, size: int) -> bool:
        """Note, in the redundancy of its key, that a block came or left; return whether anything changed."""
        source, medium = piece.source, piece.medium
        media = block.sources.get(source)
        if (media is not None and medium in media) == (kind in FILLS):
            return False
        owners = block.owners.get(medium, 0)
        self._count(block, medium, redundancy, -1)
        if kind in FILLS:
            if not owners:
                block.sizes[medium] = size
                redundancy.unique_tokens += size
            if media is None:
                media = block.sources[source] = {}
                self.blocks_of[source] += 1
                if piece.receives:
                    block.receivers.add(source)
            media[medium] = piece.announced
            owners += 1
            block.received[medium] = block.received.get(medium, 0) + (source in block.receivers)
            redundancy.physical_tokens += block.sizes[medium]
        elif media is not None:
            del media[medium]
            block.received[medium] -= source in block.receivers
            if not media:
                del block.sources[source]
                block.receivers.discard(source)
                self.blocks_of[source] -= 1
            owners -= 1
            redundancy.physical_tokens -= block.sizes[medium]
            if not owners:
                redundancy.unique_tokens -= block.sizes.pop(medium)
        block.owners[medium] = owners
        self._count(block, medium, redundancy, +1)
        return True

    def _count(self, block: Block, medium: str, redundancy: Redundancy, times: int) -> None:
        """Count the owners of a block, if it has any, `times` times: -1 takes them out."""
        if counted := block.counted_owners(medium):
            redundancy.owners[counted] += times
            redundancy.received_tokens += times * (block.owners[medium] - counted) * block.sizes[medium]
