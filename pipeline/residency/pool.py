"""Reference counts of one medium and group; operations are collected and applied by the thousand."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.residency.changes import Chains, Changes
from pipeline.residency.flow import Flow
from pipeline.residency.table import (
    CHANGED,
    FINISHED,
    FIRST,
    LAST,
    NEEDS_ROOM,
    PROGRESS,
    REMOVAL,
    REMOVED,
    SAVED,
    STORED,
    BlockTable,
    Hashes,
    count_copies,
)
from schemas.hashes import HASH_BYTES
from schemas.residency import CLEARED

Pending = tuple[bytes, float, int, bytes]
"""One event: packed hashes, event time, the code of their block size if they came or REMOVAL, and the packed
hash of the block before the first one, or NO_PARENT."""

NO_PARENT = bytes(HASH_BYTES)
NO_LORA = 0

EARLY_STORES = 256
MAX_LORAS = 0xFFFF


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
        self.gone: list[Hashes] = []
        """Blocks of the last checkpoint that left since; some may be back."""
        self.codes_of_one: dict[int, int] = {}
        """Block size to code, for sizes that stores of a single hash need no second look at."""
        self.codes_of_several: dict[int, int] = {}
        """Likewise for stores of several hashes."""
        self._codes: dict[int, int] = {}
        self._other_sizes: dict[int, list[int]] = {}
        """Block to the size codes of copies whose size is not the first one's, oldest first."""
        self.loras: list[str] = []
        """Adapters by code, which begins at 1."""
        self._lora_codes: dict[str, int] = {}
        self.pending: list[Pending] = []
        """Operations collected since the last `settle`."""
        self._chained = medium == "gpu"
        """Whether stores say where in a chain they are; those of offload tiers never have a parent."""
        self.adapters: dict[int, int] = {}
        """Index in `pending` to the code of a LoRA, where a store has one."""
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

    def lora_code(self, lora: str) -> int:
        """Return the code of an adapter's name; NO_LORA for those beyond the first 65,535."""
        code = self._lora_codes.get(lora)
        if code is None:
            if len(self.loras) == MAX_LORAS:
                return NO_LORA
            self.loras.append(lora)
            code = self._lora_codes[lora] = len(self.loras)
        return code

    def store(
        self,
        packed: bytes,
        at: float,
        block_size: int,
        parent: bytes | None = None,
        lora: str | None = None,
        *,
        may_repeat: bool = False,
    ) -> None:
        """Note that a copy of each hash came. With `may_repeat`, it counts only if one was absent."""
        if may_repeat:
            self.repeats.append(len(self.pending))
        if lora is not None:
            self.adapters[len(self.pending)] = self.lora_code(lora)
        self.pending.append((packed, at, self._codes[block_size], parent or NO_PARENT))

    def remove(self, packed: bytes, at: float) -> None:
        """Note that a copy of each hash left."""
        if not self.removes:
            self.removes = True
            self.early_stores.clear()
        self.pending.append((packed, at, REMOVAL, NO_PARENT))

    def clear(self, at: float) -> None:
        """Drop every block at event time `at`: cleared, not evicted."""
        self.settle()
        live = self.table.live()
        self.flow.cleared_blocks += sum(self.entries)
        self._record(
            live["hash"],
            np.full(len(live), CLEARED, np.uint8),
            np.full(len(live), at),
            live["size_code"],
            np.full(len(live), self.stored_tokens),
            Chains.unknown(len(live)),
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
        packed, times, codes, parents = zip(*pending, strict=True)
        ends = np.cumsum(np.fromiter(map(len, packed), np.int64, len(packed))) // HASH_BYTES
        may_repeat = np.zeros(len(packed), np.bool_)
        may_repeat[self.repeats] = True
        self.repeats.clear()
        hashes = np.frombuffer(b"".join(packed), ">u8").astype(np.uint64)
        sizes = np.array(self.block_sizes or [0], np.int64)
        counts = np.zeros((len(sizes), LAST + 1), np.int64)
        count = len(hashes)
        changed_hashes, changed_kinds = np.empty(count, np.uint64), np.empty(count, np.uint8)
        changed_times, changed_codes = np.empty(count, np.float64), np.empty(count, np.int32)
        changed_stored = np.empty(count, np.int64)
        chains = Chains.unknown(count)
        gone = np.empty(count, np.uint64)
        progress = np.zeros(1, PROGRESS)
        reached = progress[0]
        table = self.table
        reached["live"], reached["unsaved"] = table.blocks, table.unsaved
        reached["stored_tokens"] = self.stored_tokens
        event_codes, event_times = np.array(codes, np.int32), np.array(times, np.float64)
        event_parents = np.frombuffer(b"".join(parents), ">u8").astype(np.uint64)
        event_adapters = np.full(len(packed), NO_LORA, np.uint16)
        for place, adapter in self.adapters.items():
            event_adapters[place] = adapter
        self.adapters.clear()
        while True:
            outcome = count_copies(
                table.entries,
                table.room,
                hashes,
                ends,
                event_codes,
                event_times,
                may_repeat,
                event_parents,
                event_adapters,
                self._chained,
                sizes,
                counts,
                self.flow.lifetimes,
                changed_hashes,
                changed_kinds,
                changed_times,
                changed_codes,
                changed_stored,
                *chains,
                gone,
                progress,
            )
            table.blocks = int(reached["live"])
            if outcome == FINISHED:
                break
            if outcome == NEEDS_ROOM:
                table.grow(table.blocks + 1)
            else:
                code = int(event_codes[reached["event"]])
                self._count_of_several_sizes(int(hashes[reached["place"]]), code, counts, reached)
        table.unsaved = int(reached["unsaved"])
        self.stored_tokens = int(reached["stored_tokens"])
        table.shrink_if_sparse()
        if reached["gone"]:
            self.gone.append(gone[: reached["gone"]].copy())
        self._count(counts, reached)
        changed = slice(int(reached["changes"]))
        self._record(
            changed_hashes[changed],
            changed_kinds[changed],
            changed_times[changed],
            changed_codes[changed],
            changed_stored[changed],
            chains.at(changed),
        )

    def _count_of_several_sizes(
        self, block: int, code: int, counts: npt.NDArray[np.int64], reached: Any
    ) -> None:
        """Apply one operation on a resident block whose copies differ in size; its first copy stays.

        The latest of the others leaves first.
        """
        entry = self.table.entry(block)
        if code == REMOVAL:
            others = self._other_sizes[block]
            counts[others.pop(), REMOVED] += 1
            entry["copies"] -= 1
            if not others:
                del self._other_sizes[block]
        else:
            self._other_sizes.setdefault(block, []).append(code)
            counts[code, STORED] += 1
            reached["stored_tokens"] += self.block_sizes[code]
            entry["copies"] += 1
        entry["several_sizes"] = block in self._other_sizes
        if entry["unsaved"] == SAVED:
            entry["unsaved"] = CHANGED
            reached["unsaved"] += 1
        reached["place"] += 1

    def _count(self, counts: npt.NDArray[np.int64], reached: Any) -> None:
        flow = self.flow
        flow.unknown_removed_blocks += int(reached["unknown_removed"])
        flow.reannounced_blocks += int(reached["reannounced"])
        for code, size in enumerate(self.block_sizes):
            stored, filled = int(counts[code, STORED]), int(counts[code, FIRST])
            removed, evicted = int(counts[code, REMOVED]), int(counts[code, LAST])
            self.entries[code] += stored - removed
            self.blocks[code] += filled - evicted
            self.removed[code] += removed
            flow.stored_blocks += stored
            flow.stored_tokens += stored * size
            flow.filled_blocks += filled
            flow.removed_blocks += removed
            flow.evicted_blocks += evicted
            flow.evicted_tokens += evicted * size

    @property
    def touched(self) -> int:
        """How many entries the next checkpoint must hold to be up to date."""
        return self.table.unsaved + sum(map(len, self.gone))

    def put(
        self,
        hashes: Hashes,
        copies: npt.NDArray[np.int32],
        births: npt.NDArray[np.float64],
        codes: npt.NDArray[np.uint16],
        roots: Hashes,
        depths: npt.NDArray[np.uint16],
    ) -> None:
        """Set entries as a checkpoint has them; zero copies removes one."""
        self.table.put(hashes, copies, births, codes, roots, depths)
        for block in self._other_sizes:
            self.table.entry(block)["several_sizes"] = 1

    def saved(self) -> None:
        """Count everything as part of a checkpoint."""
        self.gone.clear()
        self.table.saved()

    def other_sizes(self) -> dict[int, list[int]]:
        """Return, per hash, the block sizes of copies beyond the first that differ from the entry's."""
        return {
            block: [self.block_sizes[code] for code in codes] for block, codes in self._other_sizes.items()
        }

    def restore_other_sizes(self, sizes: dict[int, list[int]]) -> None:
        """Undo `other_sizes`; the entries follow."""
        self._other_sizes = {block: [self._codes[size] for size in each] for block, each in sizes.items()}

    def _record(
        self,
        hashes: Hashes,
        kinds: npt.NDArray[np.uint8],
        times: npt.NDArray[np.float64],
        codes: npt.NDArray[np.int32] | npt.NDArray[np.uint16],
        stored: npt.NDArray[np.int64],
        chains: Chains,
    ) -> None:
        if len(hashes):
            self.changes.append(
                Changes(
                    self.medium,
                    self.group_idx,
                    hashes.copy(),
                    kinds.copy(),
                    times.copy(),
                    self.sizes_of(codes),
                    stored.copy(),
                    self.store_only,
                    chains if self._chained else None,
                    self.loras,
                )
            )
