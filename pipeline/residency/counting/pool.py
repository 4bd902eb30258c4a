"""Reference counts of one medium and group at one granularity."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.reading.columns import REMOVAL, Events, Hashes
from pipeline.residency.changes import CHANGE, ChangeRows, Changes
from pipeline.residency.counting.block_entries import BlockColumns
from pipeline.residency.counting.collected import NO_PARENT, Collected
from pipeline.residency.counting.copies import Copies
from pipeline.residency.counting.count_copies import FIRST, LAST, REMOVED, STORED, Rules, Tally, no_tally
from pipeline.residency.counting.repeats import Repeats, back_changes
from pipeline.residency.counting.shared import EARLY_HASHES, EARLY_STORES, Shared
from pipeline.residency.histogram import added, trimmed
from pipeline.residency.occupancy import Occupancy
from schemas.events import Stored, is_kept_once
from schemas.hashes import HASH_BYTES
from schemas.pool_checkpoints import PoolHead
from schemas.reasons import WithoutContent
from schemas.residency import CLEARED


class Pool:
    """Resident blocks of one medium and group of a source.

    A block is born at the event time of its first copy; its lifetime ends with the last copy. What was
    collected counts once it is settled.
    """

    def __init__(self, head: PoolHead, shared: Shared, copies: Copies) -> None:
        """`head` may come from a checkpoint, whose entries are then set by `put`; `copies` is still empty."""
        self.head = head
        self._shared = shared
        self.copies = copies
        self.repeats = Repeats(head, shared)
        self.changes: list[Changes] = []
        self.other_copies = sum(map(len, head.other_sizes.values()))
        """Copies of other sizes than their block's first one."""
        self._collected = Collected(shared)
        self._collect = self._collected.add
        self._early = None if head.removes else head.early_stores
        self._codes: dict[int, int] = {size: code for code, size in enumerate(head.block_sizes)}
        """By block size; stores of a single hash in one of these sizes need not be announced."""
        self._sizes_of_several = {size for size, code in self._codes.items() if head.several_hashes[code]}
        """Block sizes for which stores of several hashes need not be announced either."""
        self._chained = head.medium == "gpu"
        """Whether stores say where in a chain they are; those of offload tiers never have a parent."""

    def announce(self, block_size: int, *, several: bool) -> None:
        """Register a block size, or a way of announcing it, that no store had before."""
        head = self.head
        code = self._codes.get(block_size)
        if code is None:
            code = self._codes[block_size] = len(head.block_sizes)
            head.block_sizes.append(block_size)
            for column in (head.entries, head.blocks, head.removed):
                column.append(0)
            head.several_hashes.append(False)
        head.several_hashes[code] |= several
        if head.several_hashes[code]:
            self._sizes_of_several.add(block_size)

    def store(self, event: Stored, at: float, repeatable: bool = False) -> bool:
        """Add a copy of each block; return False, and do nothing, if the store must be announced first.

        With `repeatable`, a store that starts a chain counts only if one of its blocks was absent.
        """
        packed, parent = event.hashes, event.parent
        if event.block_size not in (self._sizes_of_several if len(packed) > HASH_BYTES else self._codes):
            return False
        if (
            self._early is not None
            and len(self._early) < EARLY_STORES
            and self._shared.early.reserve(len(packed) // HASH_BYTES)
        ):
            self._early.append((parent, packed))
        if parent is None or event.lora is not None or event.links:
            links = event.links if len(event.links) == len(packed) else b""
            self._collected.store(
                packed, at, event.block_size, parent, event.lora, links, repeatable=repeatable
            )
        else:
            self._collect((packed, at, event.block_size, parent))
        return True

    @property
    def one_copy(self) -> bool:
        """Whether a store of a resident block repeats it: the engine or the medium keeps each once.

        On store-only media, a block that comes again may just as well have left before.
        """
        return self._shared.one_copy or self.head.store_only or is_kept_once(self.head.medium)

    @property
    def keeps_contents(self) -> bool:
        """Whether content hashes of blocks are known here."""
        return self.copies.keeps_contents

    def knows(self, block_size: int, *, several: bool) -> bool:
        """Return whether events need only be counted.

        Stores are given by their block size and whether they have several hashes, removals by REMOVAL.
        """
        if block_size == REMOVAL:
            return self._early is None
        return block_size in (self._sizes_of_several if several else self._codes)

    def add(self, events: Events, *, repeatable: bool) -> None:
        """Add events for which `knows` is true; `repeatable` as in `store`. Takes over their rows."""
        if self._early is not None:
            self._remember(events, self._early)
        if not repeatable:
            events.rows["may_repeat"] = False
        self._collected.add_rows(events)

    def _remember(self, stores: Events, early: list[tuple[bytes | None, bytes]]) -> None:
        """Remember stores as first ones, as far as there is room."""
        counts, room = stores.rows["hashes"], self._shared.early
        if len(early) >= EARLY_STORES or room.left < counts.min(initial=EARLY_HASHES + 1):
            return
        packed = stores.hashes.astype(">u8").tobytes()
        parents = stores.rows["parent"].astype(">u8").tobytes()
        end = 0
        for at, (count, is_start) in enumerate(
            zip(counts.tolist(), stores.rows["may_repeat"].tolist(), strict=True)
        ):
            start, end = end, end + count * HASH_BYTES
            if len(early) < EARLY_STORES and room.reserve(count):
                parent = None if is_start else parents[at * HASH_BYTES : (at + 1) * HASH_BYTES]
                early.append((parent, packed[start:end]))

    def remove(self, packed: bytes, at: float) -> None:
        """Remove a copy of each hash."""
        if self._early is not None:
            self.head.removes = True
            self.forget_early()
        self._collect((packed, at, REMOVAL, NO_PARENT))

    def forget_early(self) -> None:
        """Forget the first stores, which are of no use any more."""
        if self._early is not None:
            self._shared.early.give_back(sum(len(packed) for _, packed in self._early) // HASH_BYTES)
            self._early.clear()
            self._early = None

    def clear(self, at: float) -> None:
        """Drop every block at event time `at`: cleared, not evicted."""
        self.settle()
        head = self.head
        head.flow.cleared_blocks += sum(head.entries)
        live, contents = self.copies.clear()
        cleared = np.zeros(len(live), CHANGE)
        cleared["hash"] = np.where(contents != 0, contents, live["hash"])
        cleared["block_size"] = self.sizes_of(live["size_code"])
        cleared["kind"], cleared["time"], cleared["stored"] = CLEARED, at, head.stored_tokens
        self._record(cleared)
        head.entries = [0] * len(head.entries)
        head.blocks = [0] * len(head.blocks)
        head.other_sizes.clear()
        head.repeats = False
        self.repeats.forget()
        self.other_copies = 0

    def settle(self) -> None:
        """Count what was collected; afterwards table, counters, flow and changes are up to date."""
        if not self._collected:
            return
        rest = self._collected.take()
        while len(rest.rows):
            rest = self._settle(rest)

    def _settle(self, events: Events) -> Events:
        """Count events up to a removal that may prove which announcements were copies; return the rest."""
        head, one_copy, all_known = self.head, self.one_copy, self._shared.all_known(self.head.medium)
        if not all_known:
            self.repeats.forget()  # removals prove nothing then
        repeated = bool(self.repeats) and not one_copy
        singly = self._chained and self._shared.decodes_singly
        rules = Rules(self._chained, one_copy, all_known, singly, repeated)
        sizes = np.array(head.block_sizes or [0], np.int64)
        tally = no_tally(len(sizes))
        reached = tally.progress[0]
        reached["stored_tokens"] = head.stored_tokens
        changes = self.copies.count(events, sizes, rules, tally, self._count_of_several_sizes)
        head.stored_tokens = int(reached["stored_tokens"])
        done, rest = events.cut(int(reached["event"]), int(reached["operation"]))
        if reached["repeats"] and all_known:
            self.repeats.note(done.only(done.rows["may_repeat"]), sizes, chained=self._chained)
        self._count(tally)
        self._record(changes)
        if len(rest.rows):
            rest.rows["may_repeat"] = False
            self._left_unknown(int(rest.hashes[0]), float(rest.rows["time"][0]))
        return rest

    def _left_unknown(self, block: int, at: float) -> None:
        """Handle the removal of a block that is not resident: announced again as a copy, or a contradiction.

        In either case no store repeats others from now on.
        """
        more = self.repeats.counted(block, self.copies.live(), self.copies.contents_of)
        self.repeats.forget()
        if more is None:
            return
        head = self.head
        self._record(back_changes(more.back, self.sizes_of(more.back.size_codes), at, head.stored_tokens))
        self.put(more.back)
        self.put(more.grown)
        tally = no_tally(len(head.block_sizes))
        for code, size in enumerate(head.block_sizes):
            tally.counts[code, STORED] = came = more.came_of(code)
            tally.counts[code, FIRST] = np.count_nonzero(more.back.size_codes == code)
            head.stored_tokens += came * size
        self._count(tally)
        head.repeats = False
        self._shared.copies_proved()

    def _count_of_several_sizes(self, events: Events, tally: Tally) -> None:
        """Apply one operation on a resident block whose copies differ in size; its first copy stays.

        The latest of the others leaves first.
        """
        other_sizes = self.head.other_sizes
        reached: Any = tally.progress[0]
        block = int(events.hashes[reached["operation"]])
        size = int(events.rows["block_size"][reached["event"]])
        change = -1 if size == REMOVAL else 1
        if size == REMOVAL:
            others = other_sizes[block]
            tally.counts[self._codes[others.pop()], REMOVED] += 1
            if not others:
                del other_sizes[block]
        else:
            other_sizes.setdefault(block, []).append(size)
            tally.counts[self._codes[size], STORED] += 1
            reached["stored_tokens"] += size
        self.other_copies += change
        self.copies.add(block, change, several_sizes=block in other_sizes)
        reached["operation"] += 1

    def _count(self, tally: Tally) -> None:
        head, flow, reached = self.head, self.head.flow, tally.progress[0]
        if reached["unknown_removed"]:
            flow.unknown_removed_blocks += int(reached["unknown_removed"])
            self._shared.unknown_removed(head.medium)
        flow.reannounced_blocks += int(reached["reannounced"])
        head.repeats |= bool(reached["repeats"])
        if self.keeps_contents:
            not_told: WithoutContent = "not_told" if self._chained else "other_tier"
            self._shared.without_content[not_told] += int(reached["not_told"])
            self._shared.without_content["parent_unknown"] += int(reached["parent_unknown"])
        flow.lifetimes = added(flow.lifetimes, trimmed(tally.lifetimes))
        counts = tally.counts.tolist()
        for code, size in enumerate(head.block_sizes):
            stored, filled = counts[code][STORED], counts[code][FIRST]
            removed, evicted = counts[code][REMOVED], counts[code][LAST]
            head.entries[code] += stored - removed
            head.blocks[code] += filled - evicted
            head.removed[code] += removed
            flow.stored_blocks += stored
            flow.stored_tokens += stored * size
            flow.filled_blocks += filled
            flow.removed_blocks += removed
            flow.evicted_blocks += evicted
            flow.evicted_tokens += evicted * size

    def occupancy(self, end: float) -> list[Occupancy]:
        """Return what is resident, per block size ever seen, even if nothing of it is resident any more.

        `end` makes no difference for these pools.
        """
        self.settle()
        head = self.head
        mark, repeats = head.store_only, head.repeats
        return [
            Occupancy(head.medium, head.group_idx, size, entries, blocks, blocks * size, 0, mark, repeats)
            for size, entries, blocks in zip(head.block_sizes, head.entries, head.blocks, strict=True)
        ]

    def contents_of(self, hashes: Hashes) -> Hashes:
        """Return the content hashes of those blocks that are resident now; 0 where they are not known."""
        self.settle()
        return self.copies.contents_of(hashes)

    def put(self, columns: BlockColumns) -> None:
        """Set entries as a checkpoint has them."""
        self.copies.put(columns)
        for block in self.head.other_sizes:
            self.copies.add(block, 0, several_sizes=True)

    def sizes_of(self, codes: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint32]:
        """Return the block sizes of size codes."""
        return np.array(self.head.block_sizes or [0], np.uint32).take(codes)

    def codes_of(self, sizes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint16]:
        """Return the size codes of block sizes that were announced."""
        codes = np.zeros(len(sizes), np.uint16)
        for size, code in self._codes.items():
            codes[sizes == size] = code
        return codes

    def _record(self, rows: ChangeRows) -> None:
        if len(rows):
            head = self.head
            self.changes.append(
                Changes(
                    head.medium,
                    head.group_idx,
                    rows,
                    store_only=head.store_only,
                    loras=self._shared.adapters.names,
                )
            )
