"""Stores and removals that wait to be counted, by the thousand."""

from __future__ import annotations

from operator import itemgetter

import numpy as np

from pipeline.residency.counting.count_copies import REMOVAL, Events
from schemas.hashes import HASH_BYTES

NO_PARENT = bytes(HASH_BYTES)
NO_LORA = 0
MAX_LORAS = 0xFFFF

_PACKED, _TIME, _CODE, _PARENT = map(itemgetter, range(4))


class Collected:
    """Events of one pool, oldest first."""

    def __init__(self) -> None:
        self.loras: list[str] = []
        """Adapters by code, which begins at 1."""
        self._lora_codes: dict[str, int] = {}
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
            self._adapters[len(self._events)] = self._lora_code(lora)
        self._events.append((packed, at, size_code, parent))

    def remove(self, packed: bytes, at: float) -> None:
        """A copy of each hash left."""
        self._events.append((packed, at, REMOVAL, NO_PARENT))

    def take(self) -> Events:
        """Return what was collected, one event at least, and begin anew."""
        events, count = self._events, len(self._events)
        packed = [*map(_PACKED, events)]
        may_repeat = np.zeros(count, np.bool_)
        may_repeat[self._repeats] = True
        adapters = np.full(count, NO_LORA, np.uint16)
        for index, adapter in self._adapters.items():
            adapters[index] = adapter
        columns = Events(
            np.frombuffer(b"".join(packed), ">u8").astype(np.uint64),
            np.cumsum(np.fromiter(map(len, packed), np.int64, count)) // HASH_BYTES,
            np.fromiter(map(_CODE, events), np.int32, count),
            np.fromiter(map(_TIME, events), np.float64, count),
            may_repeat,
            np.frombuffer(b"".join(map(_PARENT, events)), ">u8").astype(np.uint64),
            adapters,
        )
        events.clear()
        self._repeats.clear()
        self._adapters.clear()
        return columns

    def _lora_code(self, lora: str) -> int:
        """Return the code of an adapter's name; NO_LORA for those beyond the first 65,535."""
        code = self._lora_codes.get(lora)
        if code is None:
            if len(self.loras) == MAX_LORAS:
                return NO_LORA
            self.loras.append(lora)
            code = self._lora_codes[lora] = len(self.loras)
        return code
