"""A group announced at two granularities: coarse physical blocks and fine blocks that overlap them.

Hybrid Mamba and attention models inflate the physical block (for example to 2,176 tokens). Some engines
then also announce the attention group's blocks at the hash granularity (for example 64 tokens), with
hashes of their own and without ever removing them (vLLM pull request 43258). Here

- a token counts once: a fine block that a resident coarse block covers is not counted by itself;
- a covered fine block leaves with the last coarse block that covers it; an uncovered one by age, clear or
  restart;
- fine blocks are a set (an engine that never removes cannot be reference counted), coarse blocks keep
  reference counts.

Which coarse block covers which fine blocks is nowhere on the wire. Both chains describe the same tokens,
so the coarse block that ends at token n * coarse of its chain covers the fine blocks before the fine
block that ends at the same token of the fine chain. An engine announces both chains of a request in the
same step: a coarse store is paired with the nearest recent fine store that contains the boundary, is not
covered yet, and continues the fine chain that the coarse parent was paired with.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from pipeline.residency import histogram
from pipeline.residency.changes import Changes
from pipeline.residency.flow import Flow
from pipeline.residency.pool import Pool
from schemas.hashes import unpack_hashes
from schemas.residency import CLEARED, EVICTED, EXPIRED, FILLED, SUBSUMED

RECENT = 64
"""Stores of either granularity that wait to be paired."""


class Coarse(msgspec.Struct, array_like=True, gc=False):
    """A resident physical block."""

    copies: int
    birth: float
    tail: int | None = None
    """The last fine block it covers, once known."""


class Fine(msgspec.Struct, array_like=True, gc=False):
    """A fine block that was announced."""

    parent: int | None
    depth: int | None
    """Fine blocks from the start of the sequence up to and including this one; None until looked up."""
    birth: float
    seen: float
    covers: list[int] = []
    """Resident coarse blocks that hold its tokens: several when prompts share less than a coarse block."""


class FineStore(NamedTuple):
    """A recent fine store, at its place among the stores of the pool."""

    place: int
    hashes: tuple[int, ...]


class CoarseStore(NamedTuple):
    """A coarse store not yet paired."""

    place: int
    hashes: tuple[int, ...]
    parent: int | None


class _Saved(msgspec.Struct, array_like=True):
    coarse_size: int
    fine_size: int
    coarse: dict[int, Coarse]
    fine: dict[int, Fine]
    place: int
    fine_stores: list[FineStore]
    coarse_stores: list[CoarseStore]
    token_debt: int


class GranularPool:
    """Resident blocks of one medium and group that has two granularities."""

    def __init__(self, medium: str, group_idx: int, coarse_size: int, fine_size: int, age: float) -> None:
        self.medium = medium
        self.group_idx = group_idx
        self.coarse_size = coarse_size
        self.fine_size = fine_size
        self.flow = Flow()
        self.changes: list[Changes] = []
        self.codes_of_one: dict[int, int] = {}
        self.codes_of_several: dict[int, int] = {}
        """Empty, unlike those of a `Pool`: every store needs a second look here."""
        self.coarse: dict[int, Coarse] = {}
        self.fine: dict[int, Fine] = {}
        self._age = age
        self._per_block = coarse_size // fine_size
        self._coarse_entries = 0
        self._covered = 0
        self._token_debt = 0
        """Tokens counted twice, still to be taken off."""
        self._place = 0
        self._fine_stores: list[FineStore] = []
        self._coarse_stores: list[CoarseStore] = []
        self._log: list[tuple[int, int, float, int]] = []

    @classmethod
    def adopted(cls, pool: Pool, coarse_size: int, fine_size: int, age: float) -> GranularPool:
        """Return a pool that continues one whose second granularity has just appeared."""
        pool.settle()
        granular = cls(pool.medium, pool.group_idx, coarse_size, fine_size, age)
        granular.flow, granular.changes = pool.flow, pool.changes
        live = pool.table.live()
        sizes = np.array(pool.block_sizes)[live["size_code"]]
        blocks = zip(
            live["hash"].tolist(),
            live["copies"].tolist(),
            live["birth"].tolist(),
            sizes.tolist(),
            strict=True,
        )
        for block, copies, birth, size in blocks:
            if size == fine_size:
                granular.fine[block] = Fine(None, None, birth, birth)
            else:
                granular.coarse[block] = Coarse(copies, birth)
                granular._coarse_entries += copies
        for packed_parent, packed in pool.early_stores:
            granular._stored_early(
                unpack_hashes(packed), int.from_bytes(packed_parent, "big") if packed_parent else None
            )
        return granular

    def _stored_early(self, hashes: tuple[int, ...], parent: int | None) -> None:
        self._place += 1
        if any(block in self.fine for block in hashes):
            self._chained(hashes, parent)
            self._fine_stores.append(FineStore(self._place, hashes))
        else:
            self._coarse_stores.append(CoarseStore(self._place, hashes, parent))

    def _chained(self, hashes: tuple[int, ...], parent: int | None) -> None:
        """Note the parents of fine blocks that stand in a chain after `parent`."""
        for block in hashes:
            fine = self.fine.get(block)
            if fine is not None and fine.depth is None:
                fine.parent = parent
                fine.depth = 1 if parent is None else None
            parent = block

    def _depth(self, block: int) -> int | None:
        """Return how many fine blocks the sequence has up to and including this one, if that is known.

        A parent may be announced (again) after its child, so depths are looked up when they are needed. A
        chain that bites its own tail, which no engine makes, has no depth.
        """
        path: dict[int, Fine] = {}
        at: int | None = block
        depth: int | None = None
        while at is not None:
            fine = self.fine.get(at)
            if fine is None or at in path:
                return None
            if fine.depth is not None:
                depth = fine.depth
                break
            path[at] = fine
            at = fine.parent
        if depth is None:
            return None
        for fine in reversed(path.values()):
            depth += 1
            fine.depth = depth
        return depth

    def occupancy(self, at: float) -> list[tuple[int, int, int, int, int]]:
        """Return (block_size, entries, blocks, tokens, covered blocks) per granularity at event time `at`."""
        blocks = len(self.coarse)
        alone = sum(1 for fine in self.fine.values() if not fine.covers and fine.seen > at - self._age)
        return [
            (self.coarse_size, self._coarse_entries, blocks, blocks * self.coarse_size, 0),
            (self.fine_size, alone, alone, alone * self.fine_size, self._covered),
        ]

    def store(self, packed: bytes, at: float, block_size: int, parent: int | None) -> None:
        """Blocks came; call `batch_ended` after the last event of the batch."""
        hashes = unpack_hashes(packed)
        self._place += 1
        if block_size == self.fine_size:
            self._store_fine(hashes, at, parent)
            self._fine_stores.append(FineStore(self._place, hashes))
            return
        for block in hashes:
            known = self.coarse.get(block)
            if known is None:
                self.coarse[block] = Coarse(1, at)
                self.flow.filled_blocks += 1
                if block not in self.fine:
                    self._log.append((block, FILLED, at, self.coarse_size))
            else:
                known.copies += 1
        self._coarse_entries += len(hashes)
        self.flow.stored_blocks += len(hashes)
        self._count_tokens(len(hashes) * self.coarse_size)
        self._coarse_stores.append(CoarseStore(self._place, hashes, parent))

    def _store_fine(self, hashes: tuple[int, ...], at: float, parent: int | None) -> None:
        for block in hashes:
            known = self.fine.get(block)
            if known is None:
                self.fine[block] = Fine(None, None, at, at)
                self.flow.stored_blocks += 1
                self._count_tokens(self.fine_size)
                self.flow.filled_blocks += 1
                if block not in self.coarse:
                    self._log.append((block, FILLED, at, self.fine_size))
            else:
                known.seen = at
                self.flow.reannounced_blocks += 1
        self._chained(hashes, parent)

    def _count_tokens(self, tokens: int) -> None:
        """Count stored tokens, less those that turned out to be counted already.

        The debt may be older than the open window, whose count cannot fall below zero.
        """
        tokens += self.flow.stored_tokens
        self.flow.stored_tokens = max(0, tokens - self._token_debt)
        self._token_debt = max(0, self._token_debt - tokens)

    def remove(self, packed: bytes, at: float) -> None:
        """A copy of each hash left."""
        for block in unpack_hashes(packed):
            coarse = self.coarse.get(block)
            fine = self.fine.get(block)
            if coarse is not None:
                self.flow.removed_blocks += 1
                self._coarse_entries -= 1
                coarse.copies -= 1
                if coarse.copies == 0:
                    del self.coarse[block]
                    self._uncover(block, coarse)
                    self._evicted(block, at, coarse.birth, self.coarse_size)
            elif fine is not None:
                self.flow.removed_blocks += 1
                del self.fine[block]
                if not fine.covers:
                    self._evicted(block, at, fine.birth, self.fine_size)
                else:
                    self._covered -= 1
            else:
                self.flow.unknown_removed_blocks += 1

    def _evicted(self, block: int, at: float, birth: float, block_size: int) -> None:
        self.flow.evicted_blocks += 1
        self.flow.evicted_tokens += block_size
        self.flow.lifetimes += histogram.count(np.array([at - birth]))
        if not self._resident(block):
            self._log.append((block, EVICTED, at, block_size))

    def _resident(self, block: int) -> bool:
        """Return whether the block is there at either granularity; some engines share hashes between them."""
        fine = self.fine.get(block)
        return block in self.coarse or (fine is not None and not fine.covers)

    def _uncover(self, block: int, coarse: Coarse) -> None:
        """Fine blocks that only a coarse block that left covered are gone with it."""
        chain = self._chain(coarse.tail, self._per_block) if coarse.tail is not None else None
        for fine_block in chain or ():
            fine = self.fine[fine_block]
            if block in fine.covers:
                fine.covers.remove(block)
                if not fine.covers:
                    del self.fine[fine_block]
                    self._covered -= 1

    def clear(self, at: float) -> None:
        """Everything is gone: cleared, not evicted."""
        alone = [block for block, fine in self.fine.items() if not fine.covers]
        self.flow.cleared_blocks += self._coarse_entries + len(alone)
        self._log += [(block, CLEARED, at, self.coarse_size) for block in self.coarse]
        self._log += [(block, CLEARED, at, self.fine_size) for block in alone if block not in self.coarse]
        self.coarse.clear()
        self.fine.clear()
        self._fine_stores.clear()
        self._coarse_stores.clear()
        self._coarse_entries = self._covered = 0

    def expire(self, at: float) -> None:
        """Drop uncovered fine blocks not announced for the configured age before event time `at`."""
        old = [block for block, fine in self.fine.items() if not fine.covers and fine.seen <= at - self._age]
        for block in old:
            del self.fine[block]
            if block not in self.coarse:
                self._log.append((block, EXPIRED, at, self.fine_size))
        self.flow.expired_blocks += len(old)

    def batch_ended(self, at: float) -> None:
        """Pair the coarse stores that can be paired by now."""
        self._coarse_stores = [store for store in self._coarse_stores if not self._paired(store, at)][
            -RECENT:
        ]
        del self._fine_stores[:-RECENT]

    def _paired(self, store: CoarseStore, at: float) -> bool:
        parent = self.coarse.get(store.parent) if store.parent is not None else None
        tails = self._known_tails(store)
        nearest = sorted(self._fine_stores, key=lambda fine: (abs(fine.place - store.place), -fine.place))
        for fine_store in nearest:
            if tails:
                break
            tails = self._tails(store, fine_store, parent.tail if parent is not None else None)
        for block, tail in zip(store.hashes, tails, strict=False):
            coarse = self.coarse.get(block)
            if coarse is not None:
                coarse.tail = tail
                self._cover(block, tail, at)
        return bool(tails)

    def _known_tails(self, store: CoarseStore) -> list[int]:
        """Return the tails of another copy's pairing, or the blocks themselves where they are fine too."""
        tails = []
        for block in store.hashes:
            coarse = self.coarse.get(block)
            tail = block if block in self.fine else coarse.tail if coarse is not None else None
            if tail is None or self._chain(tail, self._per_block) is None:
                return []
            tails.append(tail)
        return tails

    def _tails(self, store: CoarseStore, fine_store: FineStore, before: int | None) -> list[int]:
        """Return the fine block that ends each coarse block, empty if this cannot be the store's chain."""
        length = len(store.hashes) * self._per_block
        base = self._depth(before) if before is not None else None
        for candidate in reversed(fine_store.hashes):
            fine = self.fine.get(candidate)
            depth = self._depth(candidate)
            if fine is None or fine.covers or depth is None or depth % self._per_block:
                continue
            if store.parent is None and depth != length:
                continue
            if base is not None and depth != base + length:
                continue
            chain = self._chain(candidate, length)
            if not chain or (base is not None and self.fine[chain[-1]].parent != before):
                continue
            return chain[:: self._per_block][::-1]
        return []

    def _chain(self, tail: int, length: int) -> list[int] | None:
        """Return `length` fine blocks from `tail` backwards, None if one of them is not known."""
        chain: list[int] = []
        at: int | None = tail
        while len(chain) < length:
            fine = self.fine.get(at) if at is not None else None
            if at is None or fine is None:
                return None
            chain.append(at)
            at = fine.parent
        return chain

    def _cover(self, block: int, tail: int, at: float) -> None:
        for fine_block in self._chain(tail, self._per_block) or ():
            fine = self.fine[fine_block]
            if block in fine.covers:
                continue
            fine.covers.append(block)
            if len(fine.covers) == 1:
                self._covered += 1
                # The same tokens were counted when the fine block came.
                self._token_debt += self.fine_size
                self._count_tokens(0)
                if fine_block not in self.coarse:
                    self._log.append((fine_block, SUBSUMED, at, self.fine_size))

    def settle(self) -> None:
        """Move the changes found so far to `changes`."""
        if self._log:
            blocks, kinds, times, sizes = zip(*self._log, strict=True)
            self._log = []
            self.changes.append(
                Changes(
                    self.medium,
                    self.group_idx,
                    np.array(blocks, np.uint64),
                    np.array(kinds, np.uint8),
                    np.array(times, np.float64),
                    np.array(sizes, np.uint32),
                )
            )

    def saved(self) -> bytes:
        """Return everything, for a checkpoint; `restored` is the inverse."""
        return msgspec.msgpack.encode(
            _Saved(
                self.coarse_size,
                self.fine_size,
                self.coarse,
                self.fine,
                self._place,
                self._fine_stores,
                self._coarse_stores,
                self._token_debt,
            )
        )

    @classmethod
    def restored(cls, medium: str, group_idx: int, saved: bytes, age: float) -> GranularPool:
        """Return the pool that `saved` described."""
        state = msgspec.msgpack.decode(saved, type=_Saved)
        pool = cls(medium, group_idx, state.coarse_size, state.fine_size, age)
        pool.coarse, pool.fine, pool._place = state.coarse, state.fine, state.place
        pool._fine_stores, pool._coarse_stores = state.fine_stores, state.coarse_stores
        pool._token_debt = state.token_debt
        pool._coarse_entries = sum(block.copies for block in state.coarse.values())
        pool._covered = sum(1 for block in state.fine.values() if block.covers)
        return pool
