"""An engine that computes prompts again although it has their blocks, or only announces them again."""

from __future__ import annotations

import random
from collections import Counter

from schemas.events import Cleared, Event, EventsRecord, Removed, Stored
from tests.support.inputs.event_records import batch, opened, record
from tests.support.inputs.packed import packed

BEGAN = 1_800_000_000.0
SIZE = 16
"""Tokens of a block."""


class CopyingEngine:
    """One that keeps every copy of a block, and prompts that it computes again or only announces again."""

    def __init__(
        self, seed: int, replica: str = "r", *, announces: bool = False, linked: bool = False
    ) -> None:
        self.replica = replica
        self.rng = random.Random(seed)
        self.announces, self.linked = announces, linked
        self.incarnation = self.seq = 0
        self.at = BEGAN
        self.copies: Counter[int] = Counter()

    def record(self) -> EventsRecord:
        """Do something, and return what is said of it."""
        rng, batches = self.rng, []
        if not self.incarnation or rng.random() < 0.02:
            self.incarnation, self.seq = self.incarnation + 1, 0
            self.copies.clear()
            batches.append(opened(self.at))
        for _ in range(rng.randrange(1, 4)):
            self.at += rng.choice((0.0, 0.5, 4.0))
            batches.append(batch(self.seq, self.at, *(self._event() for _ in range(rng.randrange(1, 4)))))
            self.seq += 1
        return record(*batches, replica=self.replica, life=self.incarnation, may_reannounce=True)

    def _event(self) -> Event:
        rng, held = self.rng, [*self.copies.elements()]
        choice = rng.random()
        if choice < 0.01:
            self.copies.clear()
            return Cleared()
        if held and choice < 0.5:
            left = rng.sample(held, min(len(held), rng.randrange(1, 4)))
            self.copies -= Counter(left)
            return Removed(packed(*left))
        begin, length = 100 * rng.randrange(1, 9), rng.randrange(1, 6)
        chain = [*range(begin, begin + length)]
        parent = None
        if self.copies[begin - 1 + length] and rng.random() < 0.4:
            parent, chain = packed(chain[-1]), [chain[-1] + 1]
        again = self.announces and parent is None and all(self.copies[one] for one in chain)
        if not again:
            self.copies.update(chain)
        links = packed(*(one + 7 for one in chain)) if self.linked else b""
        return Stored(packed(*chain), SIZE, SIZE * len(chain), parent, links=links)
