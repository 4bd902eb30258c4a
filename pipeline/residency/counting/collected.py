"""Stores and removals that wait to be counted, thousands at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.reading.columns import EVENT, NO_LINKS, EventRows, Events, Hashes
from pipeline.residency.counting.shared import NO_LORA, Shared
from pipeline.residency.row_bytes import concatenated, copied
from schemas.hashes import HASH_BYTES

NO_PARENT = bytes(HASH_BYTES)

_LITTLE = 1 << 16
"""Bytes of a larger array that a small part of it may keep in memory."""


class Collected:
    """Events of one pool, oldest first: those that came one by one, and those that came as rows."""

    def __init__(self, shared: Shared) -> None:
        """`shared` gives the codes of LoRAs."""
        self._shared = shared
        self._parts: list[Events] = []
        """Before those in `_events`."""
        self._events: list[tuple[bytes, float, int, bytes]] = []
        """Packed hashes, event time, block size of a store or REMOVAL, and the packed hash of the block
        before the first one, or NO_PARENT."""
        self.add = self._events.append
        """Adds an event that needs nothing else of `store`: called for almost every event of a fleet."""
        self._adapters: dict[int, int] = {}
        """Index in `_events` to the code of a LoRA, where a store has one."""
        self._links: dict[int, bytes] = {}
        """Index in `_events` to the packed links, where a store has them."""
        self._repeats: list[int] = []
        """Indices in `_events` of stores that do not count if all their hashes are resident."""

    def __bool__(self) -> bool:
        return bool(self._events or self._parts)

    def store(
        self,
        packed: bytes,
        at: float,
        block_size: int,
        parent: bytes | None,
        lora: str | None,
        links: bytes,
        *,
        repeatable: bool,
    ) -> None:
        """Add a store; where `repeatable`, one that starts a chain counts only if one block was absent.

        `links`, packed, are as many as the hashes, or none.
        """
        if parent is None:
            parent = NO_PARENT
            if repeatable:
                self._repeats.append(len(self._events))
        if lora is not None:
            self._adapters[len(self._events)] = self._shared.adapters.code(lora)
        if links:
            self._links[len(self._events)] = links
        self._events.append((packed, at, block_size, parent))

    def add_rows(self, events: Events) -> None:
        """Add events whose LoRAs have the codes of the source."""
        self._end_part()
        self._parts.append(Events(*map(without_the_rest, events)))

    def take(self) -> Events:
        """Return what was collected, at least one event, and start over."""
        self._end_part()
        parts, self._parts = self._parts, []
        if len(parts) == 1:
            return parts[0]
        rows = concatenated([part.rows for part in parts])
        hashes = np.concatenate([part.hashes for part in parts])
        links = NO_LINKS
        if any(len(part.links) for part in parts):
            links = np.concatenate([part.links if len(part.links) else _none(part.hashes) for part in parts])
        return Events(rows, hashes, links)

    def _end_part(self) -> None:
        if not self._events:
            return
        packed, times, sizes, parents = zip(*self._events, strict=True)
        rows: EventRows = np.zeros(len(packed), EVENT)
        rows["time"], rows["block_size"] = times, sizes
        rows["hashes"] = [len(each) // HASH_BYTES for each in packed]
        rows["parent"] = np.frombuffer(b"".join(parents), ">u8")
        rows["adapter"] = NO_LORA
        if self._repeats:
            rows["may_repeat"][self._repeats] = True
        for index, adapter in self._adapters.items():
            rows["adapter"][index] = adapter
        hashes: Hashes = np.frombuffer(b"".join(packed), ">u8").astype(np.uint64)
        links = NO_LINKS
        if self._links:
            links = _none(hashes)
            ends = np.cumsum(rows["hashes"])
            for index, packed_links in self._links.items():
                links[ends[index] - rows["hashes"][index] : ends[index]] = np.frombuffer(packed_links, ">u8")
        self._parts.append(Events(rows, hashes, links))
        self._events.clear()
        self._links.clear()
        self._repeats.clear()
        self._adapters.clear()


def _none(hashes: Hashes) -> Hashes:
    """Return an unknown link for each hash."""
    return np.zeros(len(hashes), np.uint64)


def without_the_rest(part: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a part of an array, a copy where it would keep much else in memory."""
    whole = part.base
    return part if whole is None or whole.nbytes < max(_LITTLE, 2 * part.nbytes) else copied(part)
