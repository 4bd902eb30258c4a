"""The plan of a campaign, from its seed alone: which faults follow each other, how long each holds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

TOGETHER = 0.3
"""Share of episodes in which a second fault strikes while the first one holds."""
IMPATIENT = 0.25
"""Share of episodes after which nobody waits: the next one meets parts that are still starting."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault, as far as a plan has to know it."""

    name: str
    part: str
    """What it strikes; two faults at a time strike different parts."""
    seconds: tuple[float, float]
    """Shortest and longest time it holds."""
    needs: str = ""
    """What has to run for it to be done; it never strikes together with a fault of that."""

    def goes_with(self, other: Kind) -> bool:
        """Whether both can strike at a time."""
        return self.part not in (other.part, other.needs) and self.needs != other.part


@dataclass(frozen=True)
class PlannedFault:
    """One fault; `seed` decides what the kind leaves open, such as which engine it strikes."""

    number: int
    kind: Kind
    seconds: float
    seed: int


@dataclass(frozen=True)
class Episode:
    """Faults that hold at the same time, and what happens before and after them."""

    pause_seconds: float
    faults: tuple[PlannedFault, ...]
    waits: bool
    """Everything has to be live again before the next episode."""


def plan(seed: int, faults: int, kinds: Sequence[Kind]) -> list[Episode]:
    """Return episodes with so many faults. Every kind comes once before any comes again."""
    rng = random.Random(seed)
    planned = [
        PlannedFault(number, kind, rng.uniform(*kind.seconds), rng.getrandbits(32))
        for number, kind in enumerate(_dealt(rng, faults, kinds), 1)
    ]
    episodes: list[Episode] = []
    while planned:
        taken = [planned.pop(0)]
        if planned and planned[0].kind.goes_with(taken[0].kind) and rng.random() < TOGETHER:
            taken.append(planned.pop(0))
        episodes.append(Episode(rng.uniform(0.5, 3.0), tuple(taken), rng.random() >= IMPATIENT))
    return episodes


def _dealt(rng: random.Random, count: int, kinds: Sequence[Kind]) -> list[Kind]:
    """Return kinds as from a pack of cards that is shuffled whenever it is used up."""
    dealt: list[Kind] = []
    while len(dealt) < count:
        dealt += rng.sample(kinds, min(len(kinds), count - len(dealt)))
    return dealt
