"""Reference counts of one medium and group; operations are collected and applied by the thousand."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.residency import histogram
from pipeline.residency.changes import Changes
from pipeline.residency.flow import Flow
from pipeline.residency.one_by_one import OtherSizes, settle_one_by_one
from pipeline.residency.operations import (
    REMOVAL,
    Bools,
    Entries,
    Ints,
    Keys,
    Operations,
    Pending,
    sorted_operations,
)
from pipeline.residency.settling import Course, Tally, course_of, merged, settle
from pipeline.residency.table import ABSENT, BlockTable, hashes_of, keys_of
from schemas.hashes import HASH_BYTES
from schemas.residency import CLEARED

EARLY_STORES = 256


class Pool:
    """Resident blocks of one medium and group of a source incarnation.

    `births` of a block is the event time of its first copy; a lifetime ends with the last copy.
    """

    def __init__(self, medium: str, group_idx: int) -> None:
        self.medium = medium
        self.group_idx = group_idx
        self.table = BlockTable()
        self.flow = Flow()
        self.block_sizes: list[int] = []
        self.entries: list[int] = []
        """Physical copies per block size, parallel to `block_sizes`."""
        self.blocks: list[int] = []
        """Distinct blocks per block size (that of the first copy), parallel to `block_sizes`."""
        self.several_hashes: list[bool] = []
        """Whether one event announced several blocks of the size, parallel to `block_sizes`."""
        self.removed: list[int] = []
        """Physical copies the engine removed, parallel to `block_sizes`."""
        self.stored_tokens = 0
        """Tokens of all copies that ever came, also in earlier lives of the engine."""
        self.store_only = False
        self.removes = False
        """Whether the engine ever announced a removal here."""
        self.early_stores: list[tuple[bytes | None, bytes]] = []
        """(parent, hashes) of the first stores: needed if the pool turns out to have two granularities."""
        self.changes: list[Changes] = []
        self.touched = 0
        """Entries written since the last checkpoint, each time counted."""
        self.gone: list[Keys] = []
        """Keys whose entry went since the last checkpoint; some may be back."""
        self.codes_of_one: dict[int, int] = {}
        """Block size to code, for sizes that stores of a single hash need no second look at."""
        self.codes_of_several: dict[int, int] = {}
        """Likewise for stores of several hashes."""
        self._codes: dict[int, int] = {}
        self._other_sizes: OtherSizes = {}
        self.pending: list[Pending] = []
        """Operations collected since the last `settle`."""
        self.repeats: list[int] = []
        """Indices in `pending` of stores that do not count if all their hashes are resident."""

    def note(self, block_size: int, *, several: bool) -> None:
        """Take note of a block size, or of a new way of announcing it, before the first such store."""
        code = self._codes.get(block_size)
        if code is None:
            code = self._codes[block_size] = len(self.block_sizes)
            self.block_sizes.append(block_size)
            self.entries.append(0)
            self.blocks.append(0)
            self.removed.append(0)
            self.several_hashes.append(False)
        self.several_hashes[code] |= several
        self.codes_of_one[block_size] = code
        if self.several_hashes[code]:
            self.codes_of_several[block_size] = code

    def sizes_of(self, codes: npt.NDArray[np.int32] | npt.NDArray[np.uint16]) -> npt.NDArray[np.uint32]:
        """Return the block sizes of size codes."""
        return np.array(self.block_sizes or [0], np.uint32)[codes]

    def note_chain(self, parent: bytes | None, packed: bytes) -> None:
        """Remember a store's place in its chain while the engine has not removed anything yet."""
        if len(self.early_stores) < EARLY_STORES:
            self.early_stores.append((parent, packed))

    def store(self, packed: bytes, at: float, block_size: int, *, may_repeat: bool = False) -> None:
        """Note that a copy of each hash came. With `may_repeat`, it counts only if one was absent."""
        if may_repeat:
            self.repeats.append(len(self.pending))
        self.pending.append((packed, at, self._codes[block_size]))

    def remove(self, packed: bytes, at: float) -> None:
        """Note that a copy of each hash left."""
        if not self.removes:
            self.removes = True
            self.early_stores.clear()
        self.pending.append((packed, at, REMOVAL))

    def clear(self, at: float) -> None:
        """Drop every block at event time `at`: cleared, not evicted."""
        self.settle()
        live = self.table.live()
        keys = self.table.keys[live]
        self.flow.cleared_blocks += sum(self.entries)
        self._record(
            keys,
            np.full(len(keys), CLEARED, np.uint8),
            np.full(len(keys), at),
            self.table.size_codes[live],
            np.full(len(keys), self.stored_tokens),
        )
        self.table = BlockTable(len(live))  # as many as left are likely to come
        self.entries = [0] * len(self.entries)
        self.blocks = [0] * len(self.blocks)
        self._other_sizes.clear()
        self.gone.clear()

    def settle(self) -> None:
        """Apply what was collected; afterwards table, counters, flow and changes are up to date."""
        if not self.pending:
            return
        pending, self.pending = self.pending, []
        repeats, self.repeats = self.repeats, []
        operations = sorted_operations(pending)
        if operations is None:
            return
        entries = self._entries(operations.keys)
        sizes = len(self.block_sizes)
        course = course_of(operations, entries)
        repeated = self._only_repeated(operations, course, repeats) if repeats else set()
        alone = np.full(len(entries.keys), bool(repeated))
        if self._other_sizes:
            alone |= np.isin(entries.keys, np.fromiter(self._other_sizes, np.uint64))
        tally, alone = settle(operations, entries, course, sizes, alone)
        if alone.any():
            rest, reannounced = settle_one_by_one(
                operations, entries, alone, sizes, self._other_sizes, repeated
            )
            self.flow.reannounced_blocks += reannounced
            tally = merged((tally, rest))
        self._write_back(entries)
        stored = self._stored(pending, repeated)
        self._count(tally, self.stored_tokens + stored)
        self.stored_tokens += int(stored[-1])

    def _stored(self, pending: list[Pending], repeated: set[int]) -> npt.NDArray[np.int64]:
        """Return the tokens stored before each place in the stream, and at its end.

        What only repeats resident blocks stores nothing.
        """
        sizes = [
            0 if code == REMOVAL or event in repeated else self.block_sizes[code]
            for event, (_, _, code) in enumerate(pending)
        ]
        lengths = [len(packed) // HASH_BYTES for packed, _, _ in pending]
        return np.concatenate(([0], np.cumsum(np.repeat(np.array(sizes, np.int64), lengths))))

    @staticmethod
    def _only_repeated(operations: Operations, course: Course, events: list[int]) -> set[int]:
        """Return the events that may only repeat what is resident.

        `course` counts all of them, so a hash it finds absent is absent.
        """
        absent = operations.event[course.fill]
        return set(events) - set(absent.tolist())

    def _entries(self, keys: Keys) -> Entries:
        slots = self.table.find(keys)
        resident = slots != ABSENT
        copies = np.where(resident, self.table.copies[slots], 0).astype(np.int32)
        return Entries(
            keys, slots, copies, self.table.births[slots], self.table.size_codes[slots].astype(np.int32)
        )

    def _count(self, tally: Tally, stored_before: npt.NDArray[np.int64]) -> None:
        flow = self.flow
        flow.unknown_removed_blocks += tally.unknown_removed
        for code, size in enumerate(self.block_sizes):
            stored, filled = int(tally.stored[code]), int(tally.filled[code])
            removed, evicted = int(tally.removed[code]), int(tally.evicted[code])
            self.entries[code] += stored - removed
            self.blocks[code] += filled - evicted
            self.removed[code] += removed
            flow.stored_blocks += stored
            flow.stored_tokens += stored * size
            flow.filled_blocks += filled
            flow.removed_blocks += removed
            flow.evicted_blocks += evicted
            flow.evicted_tokens += evicted * size
        if len(tally.lifetimes):
            flow.lifetimes += histogram.count(tally.lifetimes)
        order = tally.order()
        self._record(
            tally.keys[order],
            tally.kinds[order],
            tally.times[order],
            tally.codes[order],
            stored_before[tally.places[order]],
        )

    def _write_back(self, entries: Entries) -> None:
        known = entries.slots != ABSENT
        stays = entries.copies > 0
        leaves = known & ~stays
        if leaves.any():
            self.table.free(entries.slots[leaves])
            self.gone.append(entries.keys[leaves])
        kept = known & stays
        self._write(entries.slots[kept], entries, kept)
        coming = stays & ~known
        if coming.any():
            self._write(self.table.insert(entries.keys[coming]), entries, coming)
        self.touched += len(entries.keys)

    def _write(self, slots: Ints, entries: Entries, chosen: Bools) -> None:
        self.table.copies[slots] = entries.copies[chosen]
        self.table.births[slots] = entries.births[chosen]
        self.table.size_codes[slots] = entries.codes[chosen]
        self.table.changed[slots] = True

    def put(
        self,
        keys: Keys,
        copies: npt.NDArray[np.int32],
        births: npt.NDArray[np.float64],
        codes: npt.NDArray[np.uint16],
    ) -> None:
        """Set the entries of sorted, distinct keys as a checkpoint holds them; zero copies removes one."""
        self._write_back(Entries(keys, self.table.find(keys), copies, births, codes.astype(np.int32)))
        self.saved()

    def saved(self) -> None:
        """Count everything as part of a checkpoint."""
        self.touched = 0
        self.gone.clear()
        self.table.changed[:] = False

    def other_sizes(self) -> dict[int, list[int]]:
        """Return, per hash, the block sizes of copies beyond the first that differ from the entry's."""
        keys = np.fromiter(self._other_sizes, np.uint64, len(self._other_sizes))
        return {
            block: [self.block_sizes[code] for code in codes]
            for block, codes in zip(hashes_of(keys).tolist(), self._other_sizes.values(), strict=True)
        }

    def restore_other_sizes(self, sizes: dict[int, list[int]]) -> None:
        """Undo `other_sizes`."""
        keys = keys_of(np.fromiter(sizes, np.uint64, len(sizes))).tolist()
        self._other_sizes = {
            key: [self._codes[size] for size in each] for key, each in zip(keys, sizes.values(), strict=True)
        }

    def _record(
        self,
        keys: Keys,
        kinds: npt.NDArray[np.uint8],
        times: npt.NDArray[np.float64],
        codes: npt.NDArray[np.int32] | npt.NDArray[np.uint16],
        stored: npt.NDArray[np.int64],
    ) -> None:
        if len(keys):
            self.changes.append(
                Changes(
                    self.medium,
                    self.group_idx,
                    hashes_of(keys),
                    kinds,
                    times,
                    self.sizes_of(codes),
                    stored,
                    self.store_only,
                )
            )
