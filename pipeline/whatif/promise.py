"""What the figures of a fleet promise for other conditions, to compare with what really happens there."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.whatif.playing import Played
from pipeline.whatif.potential import AVOIDABLE, AVOIDABLE_HERE


@dataclass(frozen=True, slots=True)
class Promise:
    """Blocks that will be hit; None where nothing is promised in that direction."""

    at_least: int | None
    at_most: int

    def kept_by(self, hit_blocks: int) -> bool:
        """Return whether so many hits are within the promise."""
        return (self.at_least is None or self.at_least <= hit_blocks) and hit_blocks <= self.at_most


def ideal(played: Played, *, shared: bool = True) -> int:
    """Return the hits of one endless cache for all, or of an endless one for each replica: an upper bound."""
    causes = AVOIDABLE if shared else AVOIDABLE_HERE
    avoidable = sum(played.potential.blocks[cause] for cause in causes)
    return min(played.queried_blocks, played.hit_blocks + avoidable)


def promised(actual: Played, other: Played) -> Promise:
    """Return what the actual fleet's figures promise for the conditions of the other one.

    Nothing hits more than one endless cache for all. Where every replica gets the same requests as before,
    none hits more than its own cache would if it were endless, and, with more cache than before, none less
    than what the capacity curve says.
    """
    same_traffic = actual.conditions.same_traffic(other.conditions)
    at_least = None
    before, after = actual.conditions.capacity, other.conditions.capacity
    if same_traffic and (after is None or (before is not None and before <= after)):
        extra = None if before is None or after is None else (after - before) * actual.block_size
        at_least = actual.hit_blocks + actual.potential.saved_tokens(extra) // actual.block_size
    return Promise(at_least, ideal(actual, shared=not same_traffic))
