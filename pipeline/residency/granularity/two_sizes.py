"""A group announced at two granularities: coarse physical blocks and fine blocks that overlap them.

Hybrid Mamba and attention models inflate the physical block (for example to 2,176 tokens). Some engines
then also announce the attention group's blocks at the hash granularity (for example 64 tokens), with
hashes of their own and without ever removing them (vLLM pull request 43258). Here

- a token counts once: a fine block that a resident coarse block covers is not counted by itself;
- a covered fine block leaves with the last coarse block that covers it; an uncovered one by age, clear or
  restart;
- fine blocks are a set (an engine that never removes cannot be reference counted), coarse blocks keep
  reference counts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipeline.residency.changes import CHANGE, Changes
from pipeline.residency.counting.pool import Pool
from pipeline.residency.granularity.pairing import Pairing, chain, recent
from pipeline.residency.histogram import added, bucket_of
from pipeline.residency.occupancy import Occupancy
from schemas.events import Stored
from schemas.hashes import unpack_hashes
from schemas.pool_checkpoints import CoarseBlock, CoarseStore, FineBlock, FineStore, GranularState, PoolHead
from schemas.residency import CLEARED, EVICTED, EXPIRED, FILLED, SUBSUMED


def overlapping_sizes(head: PoolHead, announced: int) -> tuple[int, int] | None:
    """Return (coarse, fine) block sizes if a settled pool is announced at two overlapping granularities.

    The size `announced` just now is the fine one or a multiple of it, but need not be the smallest one:
    others may have come while the engine was taken for one that knows one copy of each block. Partial tail
    blocks (vLLM 0.24) differ from fine ones: they come one hash per event, and their removals are announced.
    """
    columns = zip(head.block_sizes, head.several_hashes, head.removed, strict=True)
    fine_sizes = [
        size
        for size, several, removed in columns
        if several and not removed and 0 < size <= announced and announced % size == 0
    ]
    for fine in sorted(fine_sizes):
        multiples = [size for size in head.block_sizes if size > fine and size % fine == 0]
        if multiples:
            return min(multiples), fine
    return None


class GranularPool:
    """Resident blocks of one medium and group that has two granularities."""

    def __init__(self, head: PoolHead, state: GranularState, *, age: float) -> None:
        """`state` is that of the head; fine blocks that nothing covers are dropped after `age` seconds."""
        self.head = head
        self.changes: list[Changes] = []
        self._state = state
        self._age = age
        self._pairing = Pairing(state)
        self._per_block = state.coarse_size // state.fine_size
        self._coarse_entries = sum(block.copies for block in state.coarse.values())
        self._covered = sum(1 for block in state.fine.values() if block.covers)
        self._fine_of: dict[int, set[int]] = {}
        """By coarse block, the fine ones that it covers: their chain may have changed since."""
        for block, fine in state.fine.items():
            for coarse in fine.covers:
                self._fine_of.setdefault(coarse, set()).add(block)
        self._log: list[tuple[int, int, float, int]] = []
        """(hash, kind, time, block size) of the changes since the last `settle`."""
        self.unknown_removed: Callable[[str], None] = lambda medium: None
        """As in `Shared`."""

    @classmethod
    def adopted(cls, pool: Pool, coarse_size: int, fine_size: int, *, age: float) -> GranularPool:
        """Return a pool that continues one whose second granularity has just appeared."""
        pool.settle()
        live = pool.copies.live()
        blocks = zip(
            live["hash"].tolist(),
            live["copies"].tolist(),
            live["birth"].tolist(),
            pool.sizes_of(live["size_code"]).tolist(),
            strict=True,
        )
        state = GranularState(coarse_size, fine_size)
        contents = pool.copies.contents_of(live["hash"])
        known = contents != 0
        state.contents = dict(zip(live["hash"][known].tolist(), contents[known].tolist(), strict=True))
        for block, copies, birth, size in blocks:
            if size == fine_size:
                state.fine[block] = FineBlock(None, None, birth, birth)
            else:
                state.coarse[block] = CoarseBlock(copies, birth)
        before = pool.head
        head = PoolHead(
            before.medium,
            before.group_idx,
            before.flow,
            store_only=before.store_only,
            granular=state,
            spec_kind=before.spec_kind,
            sliding_window=before.sliding_window,
            repeats=before.repeats,
        )
        granular = cls(head, state, age=age)
        granular.changes = pool.changes
        for packed_parent, packed in pool.head.early_stores:
            granular._stored_early(unpack_hashes(packed), _unpacked(packed_parent))
        pool.forget_early()
        return granular

    def _stored_early(self, hashes: tuple[int, ...], parent: int | None) -> None:
        state = self._state
        state.stores += 1
        if any(block in state.fine for block in hashes):
            self._link(hashes, parent)
            state.fine_stores.append(FineStore(state.stores, hashes))
        else:
            state.coarse_stores.append(CoarseStore(state.stores, hashes, parent))

    def occupancy(self, end: float) -> list[Occupancy]:
        """Return what is resident per granularity at the end of event time `end`."""
        state, head = self._state, self.head
        place, coarse_size, fine_size = (head.medium, head.group_idx), state.coarse_size, state.fine_size
        coarse = len(state.coarse)
        fine = sum(1 for one in state.fine.values() if not one.covers and one.seen > end - self._age)
        entries = self._coarse_entries
        return [
            Occupancy(*place, coarse_size, entries, coarse, coarse * coarse_size, 0, False, head.repeats),
            Occupancy(*place, fine_size, fine, fine, fine * fine_size, self._covered, False, head.repeats),
        ]

    def store(self, event: Stored, at: float, repeatable: bool = False) -> bool:
        """Store blocks and return True: no size must be announced first. Call `batch_ended` after the batch.

        Fine blocks that come again are recognised anyway, so `repeatable` changes nothing.
        """
        state = self._state
        hashes, parent = unpack_hashes(event.hashes), _unpacked(event.parent)
        state.stores += 1
        if event.block_size == state.fine_size:
            self._store_fine(hashes, at, parent)
            state.fine_stores.append(FineStore(state.stores, hashes))
            return True
        flow = self.head.flow
        for block in hashes:
            known = state.coarse.get(block)
            if known is None:
                # A fine block of the same hash may be resident; one that is covered counts as having left.
                if not self._resident(block):
                    self._log.append((block, FILLED, at, state.coarse_size))
                state.coarse[block] = CoarseBlock(1, at)
                flow.filled_blocks += 1
            else:
                known.copies += 1
        self._coarse_entries += len(hashes)
        flow.stored_blocks += len(hashes)
        self._count_tokens(len(hashes) * state.coarse_size)
        state.coarse_stores.append(CoarseStore(state.stores, hashes, parent))
        return True

    def _store_fine(self, hashes: tuple[int, ...], at: float, parent: int | None) -> None:
        state, flow = self._state, self.head.flow
        for block in hashes:
            known = state.fine.get(block)
            if known is None:
                state.fine[block] = FineBlock(None, None, at, at)
                self._pairing.changed(block)
                flow.stored_blocks += 1
                self._count_tokens(state.fine_size)
                flow.filled_blocks += 1
                if block not in state.coarse:
                    self._log.append((block, FILLED, at, state.fine_size))
            else:
                known.seen = at
                flow.reannounced_blocks += 1
        self._link(hashes, parent)

    def _link(self, hashes: tuple[int, ...], parent: int | None) -> None:
        """Set the parents of fine blocks that follow `parent` in a chain; known depths stay."""
        for block in hashes:
            fine = self._state.fine.get(block)
            if fine is not None and fine.depth is None:
                depth = 1 if parent is None else None
                if (parent, depth) != (fine.parent, fine.depth):
                    self._pairing.changed(block)
                fine.parent, fine.depth = parent, depth
            parent = block

    def _count_tokens(self, tokens: int) -> None:
        """Count stored tokens, less those that turned out to be counted already.

        The debt may be older than the open window, whose count cannot fall below zero.
        """
        state, flow = self._state, self.head.flow
        tokens += flow.stored_tokens
        flow.stored_tokens = max(0, tokens - state.token_debt)
        state.token_debt = max(0, state.token_debt - tokens)

    def remove(self, packed: bytes, at: float) -> None:
        """Remove a copy of each hash."""
        state, flow = self._state, self.head.flow
        for block in unpack_hashes(packed):
            coarse = state.coarse.get(block)
            fine = state.fine.get(block)
            if coarse is not None:
                flow.removed_blocks += 1
                self._coarse_entries -= 1
                coarse.copies -= 1
                if coarse.copies == 0:
                    del state.coarse[block]
                    self._uncover(block)
                    self._evicted(block, at, coarse.birth, state.coarse_size)
            elif fine is not None:
                flow.removed_blocks += 1
                self._drop(block)
                if not fine.covers:
                    self._evicted(block, at, fine.birth, state.fine_size)
                else:
                    self._covered -= 1
            else:
                flow.unknown_removed_blocks += 1
                self.unknown_removed(self.head.medium)

    def _evicted(self, block: int, at: float, birth: float, block_size: int) -> None:
        flow = self.head.flow
        flow.evicted_blocks += 1
        flow.evicted_tokens += block_size
        flow.lifetimes = added(flow.lifetimes, [0] * bucket_of(at - birth) + [1])
        if not self._resident(block):
            self._log.append((block, EVICTED, at, block_size))

    def _resident(self, block: int) -> bool:
        """Return whether the block is there at either granularity; some engines share hashes between them."""
        fine = self._state.fine.get(block)
        return block in self._state.coarse or (fine is not None and not fine.covers)

    def _uncover(self, block: int) -> None:
        """Drop the fine blocks that were covered only by a coarse block that left."""
        for fine_block in self._fine_of.pop(block, ()):
            fine = self._state.fine[fine_block]
            fine.covers.remove(block)
            if not fine.covers:
                self._drop(fine_block)
                self._covered -= 1

    def _drop(self, block: int) -> None:
        for coarse in self._state.fine.pop(block).covers:
            self._fine_of[coarse].remove(block)
        self._pairing.changed(block)

    def clear(self, at: float) -> None:
        """Drop every block at event time `at`: cleared, not evicted."""
        state = self._state
        alone = [block for block, fine in state.fine.items() if not fine.covers]
        self.head.flow.cleared_blocks += self._coarse_entries + len(alone)
        self.head.repeats = False
        self._log += [(block, CLEARED, at, state.coarse_size) for block in state.coarse]
        self._log += [(block, CLEARED, at, state.fine_size) for block in alone if block not in state.coarse]
        state.coarse.clear()
        state.fine.clear()
        self._pairing = Pairing(state)
        state.fine_stores.clear()
        state.coarse_stores.clear()
        self._fine_of.clear()
        self._coarse_entries = self._covered = 0

    def expire(self, at: float) -> None:
        """Drop uncovered fine blocks not announced for the configured age before event time `at`."""
        state = self._state
        self._expire(
            [block for block, fine in state.fine.items() if not fine.covers and fine.seen <= at - self._age],
            at,
        )

    def _expire(self, old: list[int], at: float) -> int:
        state = self._state
        for block in old:
            self._drop(block)
            if block not in state.coarse:
                self._log.append((block, EXPIRED, at, state.fine_size))
        self.head.flow.expired_blocks += len(old)
        return len(old)

    def size_of(self, block: int) -> int | None:
        """Return the tokens of a block that is there at either granularity, covered or not; else None."""
        if block in self._state.coarse:
            return self._state.coarse_size
        return self._state.fine_size if block in self._state.fine else None

    @property
    def blocks(self) -> int:
        """How many blocks of either granularity are known, each of which costs some 300 bytes."""
        return len(self._state.coarse) + len(self._state.fine)

    def shed(self, blocks: int, at: float) -> int:
        """Drop this many uncovered fine blocks, those announced longest ago; return how many went.

        All that were last announced at the same time as the last of them go too.
        """
        alone = {block: fine.seen for block, fine in self._state.fine.items() if not fine.covers}
        if not alone:
            return 0
        last = sorted(alone.values())[min(blocks, len(alone)) - 1]
        return self._expire([block for block, seen in alone.items() if seen <= last], at)

    def batch_ended(self, at: float) -> None:
        """Pair the coarse stores that can be paired by now."""
        state = self._state
        self._pairing.begin()
        state.coarse_stores = recent([s for s in state.coarse_stores if not self._paired(s, at)])
        state.fine_stores = recent(state.fine_stores)

    def _paired(self, store: CoarseStore, at: float) -> bool:
        tails = self._pairing.tails_of(store)
        for block, tail in zip(store.hashes, tails, strict=False):
            coarse = self._state.coarse.get(block)
            if coarse is not None:
                coarse.tail = tail
                self._cover(block, tail, at)
        return bool(tails)

    def _cover(self, block: int, tail: int, at: float) -> None:
        state = self._state
        for fine_block in chain(state, tail, self._per_block) or ():
            fine = state.fine[fine_block]
            if block in fine.covers:
                continue
            fine.covers.append(block)
            self._fine_of.setdefault(block, set()).add(fine_block)
            if len(fine.covers) == 1:
                self._covered += 1
                # The same tokens were counted when the fine block came.
                state.token_debt += state.fine_size
                self._count_tokens(0)
                if fine_block not in state.coarse:
                    self._log.append((fine_block, SUBSUMED, at, state.fine_size))

    def settle(self) -> None:
        """Move the changes found so far to `changes`."""
        if self._log:
            rows = np.zeros(len(self._log), CHANGE)
            rows[["hash", "kind", "time", "block_size"]] = self._log
            if self._state.contents:
                rows["hash"] = [self._named(block, kind) for block, kind, _, _ in self._log]
            self._log = []
            head = self.head
            # `store_only` as before it became hybrid: changes must not contradict each other about a medium.
            self.changes.append(
                Changes(head.medium, head.group_idx, rows, stored_known=False, store_only=head.store_only)
            )

    def _named(self, block: int, kind: int) -> int:
        """Return the hash by which a change names a block: the one by which it was filled."""
        if kind == FILLED:
            return block
        return self._state.contents.pop(block, block)

    @property
    def keeps_contents(self) -> bool:
        """Whether content hashes of some blocks are known."""
        return bool(self._state.contents)


def _unpacked(block: bytes | None) -> int | None:
    return int.from_bytes(block, "big") if block else None
