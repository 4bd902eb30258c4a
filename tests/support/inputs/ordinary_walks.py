"""Logs of a source that mostly goes on as before, as almost all of a fleet do, with oddities between."""

from __future__ import annotations

from typing import Any

from schemas.events import Batch, Event, EventsRecord, Removed, Stored
from tests.support.inputs.source_walks import CLEARS_ALL, COARSE, Walk, pack

LORAS = [None, None, "chat", "sql", "a" * 250]


class OrdinaryWalk(Walk):
    """Seven records of ten have only stores and removals, in batches close to each other."""

    def __init__(self, seed: int, **more: Any) -> None:
        super().__init__(seed, **more)
        # Blocks of which the bytes are known are kept one by one, so their records are read the slow way.
        self.says_bytes = seed % 4 == 3

    def _record(self) -> EventsRecord | None:
        rng = self.rng
        if self.incarnation == 0 or rng.random() < 0.3:
            return super()._record()
        batches = []
        for _ in range(rng.randint(1, 6)):
            self.at += rng.choice([0.0, 0.01, 0.05, 0.3])
            events = [self._ordinary() for _ in range(rng.randint(0, 5))]
            batches.append(Batch(self.seq, self.at - rng.choice([0.0, 0.1]), self.at, events, len(events)))
            self.seq += 1
        return EventsRecord(
            self.replica,
            self.model,
            f"{self.model}/d",
            0,
            self.incarnation,
            batches,
            engine="vllm",
            wire_era=self.era,
            may_reannounce=rng.choice([None, True, False]),
            duplicates=rng.choice([0] * 9 + [3]),
            one_copy=rng.choice([False] * 9 + [True]),
            clears_all=CLEARS_ALL[self.seq % len(CLEARS_ALL)],
        )

    def _events(self) -> list[Event]:
        return [event for event in super()._events() if not self._never_leaves(event)]

    def _never_leaves(self, event: Event) -> bool:
        """Tell whether it is a removal from storage, of which nobody tells."""
        return isinstance(event, Removed) and event.medium == "storage"

    def _ordinary(self) -> Event:
        rng = self.rng
        medium, group = rng.choice(self.media), rng.choice(self.groups)
        raw = rng.choice([None, medium.title()])
        hashes = rng.sample(self.pool, rng.choice([0, 1, 1, 2, 5]))
        if rng.random() < 0.5 and medium != "storage":
            return Removed(pack(hashes), medium, raw, group)
        size = rng.choice([COARSE] * 9 + [5])
        return Stored(
            pack(hashes),
            size,
            size * len(hashes),
            rng.choice([None, pack(self.pool[:1])]),
            medium,
            raw,
            group,
            spec_kind=rng.choice([None, "full_attention"]),
            sliding_window=rng.choice([None, 512]),
            lora=rng.choice(LORAS),
            session=rng.choice([None, "s"]),
            store_only=rng.random() < 0.1,
            size_bytes=rng.choice([0, 0, 1 << 20, 1 << 40]) * self.says_bytes,
            salt=rng.choice([None, "s"]),
        )
