"""Reference counts of one medium and group: operations are collected and applied by the thousand.

The order of operations matters only between operations on the same hash. So a batch of operations is
sorted by hash; hashes that occur once (nearly all) are applied as vectors, the others one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.residency import histogram
from pipeline.residency.changes import Changes
from pipeline.residency.flow import Flow
from pipeline.residency.table import ABSENT, BlockTable, hashes_of, keys_of
from schemas.hashes import HASH_BYTES
from schemas.residency import CLEARED, EVICTED, FILLED

REMOVAL = -1
SETTLE_AT_BYTES = 8192 * HASH_BYTES
"""Operations collected before they are applied: enough to make vectors pay, little enough to hold."""
EARLY_STORES = 256

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.intp]


class _Operations(NamedTuple):
    """n store and remove operations in stream order; `event` is the index of the event of each."""

    keys: npt.NDArray[np.uint64]
    codes: npt.NDArray[np.int32]
    """Code of the block size, or REMOVAL."""
    times: npt.NDArray[np.float64]
    event: Ints


class _Entries(NamedTuple):
    """What the table holds of the k distinct keys concerned, changed in place before writing back."""

    keys: npt.NDArray[np.uint64]
    slots: Ints
    copies: npt.NDArray[np.int32]
    births: npt.NDArray[np.float64]
    codes: npt.NDArray[np.int32]


class _ChangeColumns:
    """Changes found while settling, with the place of each in the stream."""

    def __init__(self) -> None:
        self.at: list[Ints] = []
        self.keys: list[npt.NDArray[np.uint64]] = []
        self.kinds: list[npt.NDArray[np.uint8]] = []
        self.codes: list[npt.NDArray[np.int32]] = []

    def add(self, at: Ints, keys: npt.NDArray[np.uint64], kind: int, codes: npt.NDArray[np.int32]) -> None:
        self.at.append(at)
        self.keys.append(keys)
        self.kinds.append(np.full(len(at), kind, np.uint8))
        self.codes.append(codes)


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
        self.store_only = False
        self.removes = False
        """Whether the engine ever announced a removal here."""
        self.early_stores: list[tuple[bytes | None, bytes]] = []
        """(parent, hashes) of the first stores: needed if the pool turns out to have two granularities."""
        self.changes: list[Changes] = []
        self.touched: list[npt.NDArray[np.uint64]] = []
        """Keys whose entry changed since the last checkpoint."""
        self._codes: dict[int, int] = {}
        self._other_sizes: dict[int, list[int]] = {}
        """Key to the size codes of copies beyond the first that differ from the entry's."""
        self._pending: list[tuple[bytes, float, int]] = []
        self._pending_bytes = 0
        self._repeats: list[int] = []
        """Indices in `_pending` of stores that do not count if all their hashes are resident."""

    def knows(self, block_size: int, *, several: bool) -> bool:
        """Return whether the size was announced before, and in this way."""
        code = self._codes.get(block_size)
        return code is not None and (not several or self.several_hashes[code])

    def note(self, block_size: int, *, several: bool) -> None:
        """Take note of a block size, or of a new way of announcing it, before the first such store."""
        if block_size not in self._codes:
            self._codes[block_size] = len(self.block_sizes)
            self.block_sizes.append(block_size)
            self.entries.append(0)
            self.blocks.append(0)
            self.removed.append(0)
            self.several_hashes.append(False)
        self.several_hashes[self._codes[block_size]] |= several

    def note_chain(self, parent: bytes | None, packed: bytes) -> None:
        """Remember a store's place in its chain while the engine has not removed anything yet."""
        if len(self.early_stores) < EARLY_STORES:
            self.early_stores.append((parent, packed))

    def store(self, packed: bytes, at: float, block_size: int, *, may_repeat: bool = False) -> None:
        """Note that a copy of each hash came. With `may_repeat`, it counts only if one was absent."""
        if may_repeat:
            self._repeats.append(len(self._pending))
        self._pending.append((packed, at, self._codes[block_size]))
        self._pending_bytes += len(packed)
        if self._pending_bytes >= SETTLE_AT_BYTES:
            self.settle()

    def remove(self, packed: bytes, at: float) -> None:
        """Note that a copy of each hash left."""
        if not self.removes:
            self.removes = True
            self.early_stores.clear()
        self._pending.append((packed, at, REMOVAL))
        self._pending_bytes += len(packed)
        if self._pending_bytes >= SETTLE_AT_BYTES:
            self.settle()

    def clear(self, at: float) -> None:
        """Drop every block at event time `at`: cleared, not evicted."""
        self.settle()
        live = self.table.live()
        keys = self.table.keys[live]
        self.flow.cleared_blocks += sum(self.entries)
        self._record(
            keys, np.full(len(keys), CLEARED, np.uint8), np.full(len(keys), at), self.table.size_codes[live]
        )
        self.table = BlockTable()
        self.entries = [0] * len(self.entries)
        self.blocks = [0] * len(self.blocks)
        self._other_sizes.clear()
        self.touched.append(keys)

    def settle(self) -> None:
        """Apply what was collected; afterwards table, counters, flow and changes are up to date."""
        if not self._pending:
            return
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        repeats, self._repeats = self._repeats, []
        packed, times, codes = zip(*pending, strict=True)
        lengths = np.fromiter(map(len, packed), np.intp, len(packed)) // HASH_BYTES
        hashes = np.frombuffer(b"".join(packed), ">u8").astype(np.uint64)
        if not len(hashes):
            return
        event = np.repeat(np.arange(len(packed)), lengths)
        operations = _Operations(
            keys_of(hashes), np.array(codes, np.int32)[event], np.array(times, np.float64)[event], event
        )
        self._apply(operations, repeats)

    def _apply(self, operations: _Operations, repeats: list[int]) -> None:
        order = np.argsort(operations.keys, kind="stable")
        by_key = operations.keys[order]
        first = np.concatenate(([True], by_key[1:] != by_key[:-1]))
        starts = np.flatnonzero(first)
        occurrences = np.diff(starts, append=len(by_key))
        entries = self._entries(by_key[starts])
        entry_of = np.empty(len(by_key), np.intp)
        entry_of[order] = np.cumsum(first) - 1

        single = occurrences == 1
        at = order[starts]
        code = operations.codes[at]
        if self._other_sizes:
            single &= ~np.isin(entries.keys, np.fromiter(self._other_sizes, np.uint64))
        if len(self.block_sizes) > 1:
            single &= (code == REMOVAL) | (entries.copies == 0) | (code == entries.codes)

        columns = _ChangeColumns()
        open_repeats: set[int] = set()
        if repeats:
            skipped, open_repeats = self._skipped(operations, repeats, entry_of, entries.copies, occurrences)
            single &= ~skipped
            if open_repeats:
                single[:] = False
                skipped[:] = False
            several = ~(single | skipped)
        else:
            several = ~single
        self._apply_singles(operations, at[single], np.flatnonzero(single), entries, columns)
        if several.any():
            self._apply_in_order(
                operations, np.flatnonzero(several[entry_of]), entry_of, entries, columns, open_repeats
            )
        self._write_back(entries)
        self._collect(operations.times, columns)

    def _entries(self, keys: npt.NDArray[np.uint64]) -> _Entries:
        slots = self.table.find(keys)
        resident = slots != ABSENT
        copies = np.where(resident, self.table.copies[slots], 0).astype(np.int32)
        return _Entries(
            keys, slots, copies, self.table.births[slots], self.table.size_codes[slots].astype(np.int32)
        )

    def _skipped(
        self,
        operations: _Operations,
        repeats: list[int],
        entry_of: Ints,
        copies: npt.NDArray[np.int32],
        occurrences: Ints,
    ) -> tuple[Bools, set[int]]:
        """Return the entries of stores that only repeat, and the events that cannot be told yet.

        An event can be told at once when none of its hashes occurs elsewhere among the operations, or
        when one that does not is absent.
        """
        skipped = np.zeros(len(copies), np.bool_)
        open_repeats: set[int] = set()
        for index in repeats:
            begin, end = np.searchsorted(operations.event, [index, index + 1])
            mine = entry_of[begin:end]
            alone = occurrences[mine] == 1
            if not len(mine) or (copies[mine[alone]] == 0).any():
                continue
            if alone.all():
                skipped[mine] = True
                self.flow.reannounced_blocks += len(mine)
            else:
                open_repeats.add(index)
        if open_repeats and skipped.any():
            # The one-by-one path decides all of them again, in order.
            self.flow.reannounced_blocks -= int(skipped.sum())
            open_repeats = set(repeats)
        return skipped, open_repeats

    def _apply_singles(
        self, operations: _Operations, at: Ints, index: Ints, entries: _Entries, columns: _ChangeColumns
    ) -> None:
        """Apply operations on hashes that occur once; `at[i]` is the operation on entry `index[i]`."""
        code = operations.codes[at]
        before = entries.copies[index]
        store = code != REMOVAL
        sizes = len(self.block_sizes)

        entries.copies[index] = np.where(store, before + 1, np.maximum(before - 1, 0))
        fill = store & (before == 0)
        entries.births[index[fill]] = operations.times[at[fill]]
        entries.codes[index[fill]] = code[fill]
        leave = ~store & (before > 0)
        evict = ~store & (before == 1)
        left_code = entries.codes[index]
        self._count_stores(
            np.bincount(code[store], minlength=sizes), np.bincount(code[fill], minlength=sizes)
        )
        self._count_removals(
            np.bincount(left_code[leave], minlength=sizes), np.bincount(left_code[evict], minlength=sizes)
        )
        self.flow.unknown_removed_blocks += int(np.count_nonzero(~store & (before == 0)))
        if evict.any():
            lifetimes = operations.times[at[evict]] - entries.births[index[evict]]
            self.flow.lifetimes += histogram.count(lifetimes)
            columns.add(at[evict], entries.keys[index[evict]], EVICTED, left_code[evict])
        if fill.any():
            columns.add(at[fill], entries.keys[index[fill]], FILLED, code[fill])

    def _apply_in_order(
        self,
        operations: _Operations,
        at: Ints,
        entry_of: Ints,
        entries: _Entries,
        columns: _ChangeColumns,
        open_repeats: set[int],
    ) -> None:
        """Apply the operations `at` (ascending) one by one."""
        sizes = len(self.block_sizes)
        stored, filled = np.zeros(sizes, np.intp), np.zeros(sizes, np.intp)
        removed, evicted = np.zeros(sizes, np.intp), np.zeros(sizes, np.intp)
        found: dict[int, list[tuple[int, int, int]]] = {FILLED: [], EVICTED: []}
        lifetimes: list[float] = []
        index = entry_of[at]
        touched, local = np.unique(index, return_inverse=True)
        copies, births = entries.copies[touched].tolist(), entries.births[touched].tolist()
        codes, keys = entries.codes[touched].tolist(), entries.keys[touched].tolist()
        events = operations.event[at]
        decided: dict[int, bool] = {}
        for op, event, i, code, time in zip(
            at.tolist(),
            events.tolist(),
            local.tolist(),
            operations.codes[at].tolist(),
            operations.times[at].tolist(),
            strict=True,
        ):
            if event in open_repeats:
                if event not in decided:
                    decided[event] = all(copies[j] for j in local[events == event].tolist())
                if decided[event]:
                    self.flow.reannounced_blocks += 1
                    continue
            if code != REMOVAL:
                stored[code] += 1
                if copies[i] == 0:
                    filled[code] += 1
                    births[i], codes[i] = time, code
                    found[FILLED].append((op, keys[i], code))
                elif code != codes[i]:
                    self._other_sizes.setdefault(keys[i], []).append(code)
                copies[i] += 1
            elif copies[i] == 0:
                self.flow.unknown_removed_blocks += 1
            else:
                copies[i] -= 1
                removed[self._size_of_leaving_copy(keys[i], codes[i])] += 1
                if copies[i] == 0:
                    evicted[codes[i]] += 1
                    lifetimes.append(time - births[i])
                    found[EVICTED].append((op, keys[i], codes[i]))
        entries.copies[touched], entries.births[touched], entries.codes[touched] = copies, births, codes
        self._count_stores(stored, filled)
        self._count_removals(removed, evicted)
        self.flow.lifetimes += histogram.count(np.array(lifetimes, np.float64))
        for kind, rows in found.items():
            if rows:
                ops, row_keys, row_codes = zip(*rows, strict=True)
                columns.add(
                    np.array(ops, np.intp), np.array(row_keys, np.uint64), kind, np.array(row_codes, np.int32)
                )

    def _size_of_leaving_copy(self, key: int, code: int) -> int:
        others = self._other_sizes.get(key)
        if others is None:
            return code
        leaving = others.pop()
        if not others:
            del self._other_sizes[key]
        return leaving

    def _count_stores(self, stored: Ints, filled: Ints) -> None:
        for code, count in enumerate(stored.tolist()):
            if count:
                self.entries[code] += count
                self.flow.stored_blocks += count
                self.flow.stored_tokens += count * self.block_sizes[code]
        for code, count in enumerate(filled.tolist()):
            self.blocks[code] += count
            self.flow.filled_blocks += count

    def _count_removals(self, removed: Ints, evicted: Ints) -> None:
        for code, count in enumerate(removed.tolist()):
            self.entries[code] -= count
            self.removed[code] += count
            self.flow.removed_blocks += count
        for code, count in enumerate(evicted.tolist()):
            if count:
                self.blocks[code] -= count
                self.flow.evicted_blocks += count
                self.flow.evicted_tokens += count * self.block_sizes[code]

    def _write_back(self, entries: _Entries) -> None:
        known = entries.slots != ABSENT
        self._write(entries.slots[known], entries, known)
        coming = ~known & (entries.copies > 0)
        if coming.any():
            self._write(self.table.insert(entries.keys[coming]), entries, coming)
        self.touched.append(entries.keys)

    def _write(self, slots: Ints, entries: _Entries, chosen: Bools) -> None:
        self.table.copies[slots] = entries.copies[chosen]
        self.table.births[slots] = entries.births[chosen]
        self.table.size_codes[slots] = entries.codes[chosen]

    def _collect(self, times: npt.NDArray[np.float64], columns: _ChangeColumns) -> None:
        if not columns.at:
            return
        at = np.concatenate(columns.at)
        order = np.argsort(at, kind="stable")
        at = at[order]
        self._record(
            np.concatenate(columns.keys)[order],
            np.concatenate(columns.kinds)[order],
            times[at],
            np.concatenate(columns.codes)[order],
        )

    def put(
        self,
        keys: npt.NDArray[np.uint64],
        copies: npt.NDArray[np.int32],
        births: npt.NDArray[np.float64],
        codes: npt.NDArray[np.uint16],
    ) -> None:
        """Set the entries of sorted, distinct keys as a checkpoint holds them; zero copies removes one."""
        self._write_back(_Entries(keys, self.table.find(keys), copies, births, codes.astype(np.int32)))
        self.touched.clear()

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
        keys: npt.NDArray[np.uint64],
        kinds: npt.NDArray[np.uint8],
        times: npt.NDArray[np.float64],
        codes: npt.NDArray[np.int32] | npt.NDArray[np.uint16],
    ) -> None:
        if len(keys):
            sizes = np.array(self.block_sizes, np.uint32)[codes]
            self.changes.append(Changes(self.medium, self.group_idx, hashes_of(keys), kinds, times, sizes))
