"""A hash table of resident blocks in numpy columns: about 40 bytes a block, looked up by the thousand.

Buckets of eight slots; a key lives in its own bucket or, when that was full, in the next one that had
room. A slot that was used once never counts as unused again, so a search may stop at the first bucket
with a slot that was never used. The bucket of a key is its high bits: sorted keys walk memory in order.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
Copies = npt.NDArray[np.int32]
Slots = npt.NDArray[np.intp]

WIDTH: Final = 8
FILL_AFTER_REBUILD: Final = 0.55
FILL_LIMIT: Final = 0.8
UNUSED: Final = -1
ABSENT: Final = -1
_HIGH = np.uint64(32)
_SPREAD = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio: odd, so multiplying by it is a bijection (Knuth 6.4)."""
_GATHER = pow(_SPREAD, -1, 1 << 64)


_KEY_OF_ZERO = np.uint64(0xD1B54A32D192ED03)


def keys_of(hashes: npt.NDArray[np.uint64]) -> Keys:
    """Return the keys of block hashes: as many, evenly spread whatever the engine's hashes look like.

    Key 0 marks free slots, so the hash 0 shares its key with one other of the 2**64.
    """
    keys: Keys = hashes * np.uint64(_SPREAD)
    keys[keys == 0] = _KEY_OF_ZERO
    return keys


def hashes_of(keys: Keys) -> npt.NDArray[np.uint64]:
    """Return the block hashes of keys."""
    hashes: npt.NDArray[np.uint64] = keys * np.uint64(_GATHER)
    hashes[keys == _KEY_OF_ZERO] = 0
    return hashes


class BlockTable:
    """Columns indexed by slot. `copies` is UNUSED for a slot never used, 0 for one that was given back."""

    def __init__(self, blocks: int = 0) -> None:
        self._allocate(blocks)

    def _allocate(self, blocks: int) -> None:
        self._buckets = max(1, int(blocks / (WIDTH * FILL_AFTER_REBUILD)) + 1)
        slots = self._buckets * WIDTH
        self.keys: Keys = np.zeros(slots, np.uint64)
        self.copies: Copies = np.full(slots, UNUSED, np.int32)
        self.births: npt.NDArray[np.float64] = np.zeros(slots, np.float64)
        self.size_codes: npt.NDArray[np.uint16] = np.zeros(slots, np.uint16)
        self.changed: npt.NDArray[np.bool_] = np.zeros(slots, np.bool_)
        """Set by whoever writes a slot; for the next checkpoint."""
        self._used = 0

    @property
    def bytes_allocated(self) -> int:
        """Return the size of the columns in bytes."""
        columns = (self.keys, self.copies, self.births, self.size_codes, self.changed)
        return sum(column.nbytes for column in columns)

    def live(self) -> Slots:
        """Return the slots of all resident blocks."""
        return np.flatnonzero(self.copies > 0)

    def _home(self, keys: Keys) -> Slots:
        home: Slots = (((keys >> _HIGH) * np.uint64(self._buckets)) >> _HIGH).astype(np.intp)
        return home

    def find(self, keys: Keys) -> Slots:
        """Return the slot of each resident key, ABSENT for the others. Fast when keys are sorted."""
        result, going = self._look(self._home(keys), keys)
        pending = going
        bucket = self._home(keys[going])
        while len(pending):
            bucket = (bucket + 1) % self._buckets
            slots, going = self._look(bucket, keys[pending])
            result[pending] = slots
            pending, bucket = pending[going], bucket[going]
        return result

    def _look(self, bucket: Slots, keys: Keys) -> tuple[Slots, Slots]:
        """Return where each key is in its bucket, and the indices of those to be sought in the next one."""
        column = _first(_row_bits(self.keys.reshape(-1, WIDTH).take(bucket, axis=0) == keys[:, None]))
        slots = bucket * WIDTH + column
        missing = np.flatnonzero(column == WIDTH)
        slots[missing] = ABSENT
        # A bucket fills from the left, so it is full when its last slot is used.
        last = bucket[missing] * WIDTH + (WIDTH - 1)
        return slots, missing[self.copies.take(last) != UNUSED]

    def insert(self, keys: Keys) -> Slots:
        """Give each of the sorted, distinct, absent keys a slot with one copy and return the slots.

        May move every other slot: slots returned earlier are void afterwards.
        """
        if self._used + len(keys) > FILL_LIMIT * self._buckets * WIDTH:
            self._rebuild(len(keys))
        result = np.empty(len(keys), np.intp)
        pending = np.arange(len(keys))
        bucket = self._home(keys)
        while len(pending):
            column, placed = self._vacancies(bucket)
            slots = (bucket * WIDTH + column)[placed]
            self._used += int(np.count_nonzero(self.copies.take(slots) == UNUSED))
            self.keys[slots] = keys[pending[placed]]
            self.copies[slots] = 1
            result[pending[placed]] = slots
            left = ~placed
            pending, bucket = pending[left], (bucket[left] + 1) % self._buckets
            order = np.argsort(bucket, kind="stable")
            pending, bucket = pending[order], bucket[order]
        return result

    def _vacancies(self, bucket: Slots) -> tuple[Slots, npt.NDArray[np.bool_]]:
        """Return a free column for each of the sorted buckets, a different one for each equal bucket."""
        free = _row_bits(self.keys.reshape(-1, WIDTH).take(bucket, axis=0) == 0)
        again = np.flatnonzero(bucket[1:] == bucket[:-1]) + 1
        if len(again):
            rank = _rank_in_run(bucket)[again]
            while len(again):
                free[again] &= free[again] - 1
                rank -= 1
                again, rank = again[rank > 0], rank[rank > 0]
        column = _first(free)
        return column, column < WIDTH

    def free(self, slots: Slots) -> None:
        """Give slots back: their blocks left."""
        self.copies[slots] = 0
        self.keys[slots] = 0

    def _rebuild(self, coming: int) -> None:
        live = self.live()
        live = live[np.argsort(self.keys[live])]
        keys, copies = self.keys[live], self.copies[live]
        births, size_codes, changed = self.births[live], self.size_codes[live], self.changed[live]
        self._allocate(len(live) + coming)
        slots = self.insert(keys)
        self.copies[slots], self.births[slots], self.size_codes[slots] = copies, births, size_codes
        self.changed[slots] = changed


def _row_bits(rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """Return each row of eight booleans as one word, column c in byte c."""
    words: npt.NDArray[np.uint64] = rows.view("<u8").ravel()
    return words


def _first(words: npt.NDArray[np.uint64]) -> Slots:
    """Return the first true column of each row, WIDTH where there is none.

    The bits below the lowest one that is set are counted; argmax along rows this short is far slower.
    """
    lowest = words & (~words + np.uint64(1))
    columns: Slots = (np.bitwise_count(lowest - np.uint64(1)) >> 3).astype(np.intp)
    return columns


def _rank_in_run(sorted_values: Slots) -> Slots:
    """Return 0, 1, 2, ... within each run of equal values."""
    index = np.arange(len(sorted_values))
    starts = np.concatenate(([True], sorted_values[1:] != sorted_values[:-1]))
    return index - np.maximum.accumulate(np.where(starts, index, 0))
