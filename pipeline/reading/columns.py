"""Stores and removals as columns: what compiled code reads of records, and what it counts."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
"""Hashes of blocks."""

REMOVAL: Final = -1
"""Instead of a block size: the blocks of the event left."""

EVENT: Final = np.dtype(
    [
        ("time", np.float64),  # seconds since the epoch
        ("parent", np.uint64),  # the block before the first one in their chain; 0 at its start
        ("hashes", np.int64),  # how many it has
        ("block_size", np.int64),  # tokens, or REMOVAL
        ("adapter", np.uint16),  # code of their LoRA
        ("pool", np.uint8),  # where events of several pools are together, else of no meaning
        ("may_repeat", np.bool_),  # the event counts only if one of its hashes is absent
    ]
)
"""A store or a removal."""

EventRows = npt.NDArray[np.void]
NO_LINKS: Final = np.empty(0, np.uint64)


class Events(NamedTuple):
    """m stores and removals in their order, of n hashes in all."""

    rows: EventRows
    """(m,) of EVENT; their numbers of hashes add up to n."""
    hashes: Hashes
    """(n,)"""
    links: Hashes = NO_LINKS
    """(n,) or nothing: links of stores whose blocks follow each other, else content hashes; 0: unknown."""

    def only(self, chosen: npt.NDArray[np.bool_]) -> Events:
        """Return a copy of the `chosen` events."""
        of_hashes = np.repeat(chosen, self.rows["hashes"])
        links = self.links[of_hashes] if len(self.links) else NO_LINKS
        return Events(self.rows[chosen], self.hashes[of_hashes], links)

    def cut(self, event: int, operation: int) -> tuple[Events, Events]:
        """Return what comes before `operation`, which is of `event` (of none at the end), and the rest."""
        if event == len(self.rows):
            return self, Events(self.rows[event:], self.hashes[operation:])
        before, after = self.rows[: event + 1].copy(), self.rows[event:].copy()
        before["hashes"][event] = operation - before["hashes"][:event].sum()
        after["hashes"][0] -= before["hashes"][event]
        return (
            Events(before, self.hashes[:operation], self.links[:operation]),
            Events(after, self.hashes[operation:], self.links[operation:]),
        )
