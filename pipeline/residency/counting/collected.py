"""Stores and removals that wait to be counted, by the thousand."""

from __future__ import annotations

import numpy as np

from pipeline.residency.counting.count_copies import REMOVAL, Events
from pipeline.residency.counting.shared import NO_LORA, Shared
from schemas.hashes import HASH_BYTES

NO_PARENT = bytes(HASH_BYTES)


class Collected:
    """Events of one pool, oldest first."""

    def __init__(self, shared: Shared) -> None:
        """`shared` gives the codes of LoRAs."""
        self._shared = shared
        self._events: list[tuple[bytes, float, int, bytes]] = []
        """Packed hashes, event time, the code of their block size if they came or REMOVAL, and the packed
        hash of the block before the first one, or NO_PARENT."""
        self.add = self._events.append
        """Adds an event that `store` has nothing to say of: called for almost every event of a fleet."""
        self._adapters: dict[int, int] = {}
        """Index in `_events` to the code of a LoRA, where a store has one."""
        self._repeats: list[int] = []
        """Indices in `_events` of stores that do not count if all their hashes are resident."""

    def __len__(self) -> int:
        return len(self._events)

    def store(
        self,
        packed: bytes,
        at: float,
        size_code: int,
        parent: bytes | None,
        lora: str | None,
        *,
        repeatable: bool,
    ) -> None:
        """A copy of each hash came; where `repeatable`, a chain's start counts only if one was absent."""
        if parent is None:
            parent = NO_PARENT
            if repeatable:
                self._repeats.append(len(self._events))
        if lora is not None:
            self._adapters[len(self._events)] = self._shared.adapters.code(lora)
        self._events.append((packed, at, size_code, parent))

    def remove(self, packed: bytes, at: float) -> None:
        """A copy of each hash left."""
        self._events.append((packed, at, REMOVAL, NO_PARENT))

    def take(self) -> Events:
        """Return what was collected, one event at least, and begin anew."""
        count = len(self._events)
        packed, times, codes, parents = zip(*self._events, strict=True)
        may_repeat = np.zeros(count, np.bool_)
        if self._repeats:
            may_repeat[self._repeats] = True
        adapters = np.full(count, NO_LORA, np.uint16)
        for index, adapter in self._adapters.items():
            adapters[index] = adapter
        columns = Events(
            np.frombuffer(b"".join(packed), ">u8").astype(np.uint64),
            np.cumsum(np.fromiter(map(len, packed), np.int64, count)) // HASH_BYTES,
            np.fromiter(codes, np.int32, count),
            np.fromiter(times, np.float64, count),
            may_repeat,
            np.frombuffer(b"".join(parents), ">u8").astype(np.uint64),
            adapters,
        )
        self._events.clear()
        self._repeats.clear()
        self._adapters.clear()
        return columns
