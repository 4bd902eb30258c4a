"""A pool that is announced at two granularities; docs/exactness.md#two-granularities explains its figures.

- A group becomes hybrid at the store that gives it a fine size: a size that is announced several blocks at
  a time, that the engine never removed, and of which a larger announced size is a multiple. Only a store
  that is the first of its size, or the first of several blocks of it, can do so, and only for sizes that
  are its own or that its own is a multiple of. *Fine* is the smallest of these, *coarse* the smallest
  multiple of it that was ever announced; any other size counts as coarse from then on. Blocks held before
  stay, coarse ones with their copies. The first 256 stores from before take part in the pairing, if nothing
  was removed before; those that all pools of the source remember have at most 16,384 blocks together.
- With a record marked `one_copy`, no group becomes hybrid; a group that is hybrid stays so.
- A fine block follows the one before it in its event; the first one follows the event's parent. Its depth
  is its position in the sequence, counted from 1 for a block without parent, as found when a pairing first
  looks it up.
- After each batch, coarse stores not paired yet are tried, oldest first. If all blocks have hashes of fine
  blocks themselves, or were paired before, those pairs count. Otherwise fine stores are tried, the nearest
  in the stream first (of two, the later). The coarse store ends with the last block of such a store that
  nothing covers, whose depth is a multiple of the ratio of sizes, and from which as many fine blocks as the
  coarse store holds lead back to the start of the sequence (no coarse parent) or to the last fine block of
  the coarse parent's pairing, where that is known.
- Tokens that turn out to be counted twice are taken off `stored_tokens` of the open window; what would make
  it fall below 0 is taken off later windows.
- At the end of a window, fine blocks past their age limit do not count. `expired_blocks` counts them in the
  next window in which anything comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pipeline.verify.replica.copies import Copies, Held
from pipeline.verify.replica.residency_sums import ResidencySums, Resident

WAITING = 64
"""Stores of each granularity that are remembered for pairing."""
WAITING_HASHES = 16_384
"""Blocks, at most, in the remembered stores of one granularity together."""


@dataclass
class Coarse:
    """A physical block."""

    copies: int
    since: float
    tail: int | None = None
    """Fine block that ends it, once paired."""
    covers: list[int] = field(default_factory=list)


@dataclass
class Fine:
    """A fine block; those that nothing covers count by themselves."""

    since: float
    announced: float
    parent: int | None = None
    depth: int | None = None
    """Position in its sequence, from 1, as found when it was first looked up."""
    covered_by: set[int] = field(default_factory=set)


class Store(NamedTuple):
    """A store and its number among those of both granularities."""

    number: int
    parent: int | None
    hashes: tuple[int, ...]


class TwoSizes:
    """Coarse blocks are counted by copies, fine ones are a set."""

    store_only = False
    """As occupancy shows it."""

    def __init__(self, before: Copies, coarse_size: int, fine_size: int, age: float) -> None:
        """Take over what was held when the second granularity appeared."""
        self.flow = before.flow
        self.at_least = before.at_least
        self.coarse_size = coarse_size
        self.fine_size = fine_size
        self.in_coarse = coarse_size // fine_size
        self.age = age
        self.coarse: dict[int, Coarse] = {}
        self.fine: dict[int, Fine] = {}
        self.contents = {**before.contents}
        """Content hashes of blocks that had one before, for as long as they count."""
        self.tokens_owed = 0
        """Tokens counted twice and not taken back yet: a window's count does not fall below 0."""
        self.stores = 0
        self.fine_stores: list[Store] = []
        self.coarse_stores: list[Store] = []
        self._no_depth: set[int] = set()
        """Blocks whose chains lead nowhere; emptied for each batch, as chains may have changed since."""
        self._hopeless: set[int] = set()
        """Numbers of fine stores in which this batch found no block that may end a coarse one."""
        for one, block in before.blocks.items():
            if block.sizes[0] == fine_size:
                self.fine[one] = Fine(block.since, block.since)
            else:
                self.coarse[one] = Coarse(len(block.sizes), block.since)
        for first in before.first_stores:
            self.stores += 1
            store = Store(self.stores, first.parent, first.hashes)
            if any(one in self.fine for one in first.hashes):
                self._link(store)
                self.fine_stores.append(store)
            else:
                self.coarse_stores.append(store)

    def store(self, hashes: tuple[int, ...], block_size: int, parent: int | None, at: float) -> None:
        """Count a store; any size but the fine one is a coarse block."""
        self.stores += 1
        store = Store(self.stores, parent, hashes)
        if block_size != self.fine_size:
            for one in hashes:
                if one in self.coarse:
                    self.coarse[one].copies += 1
                else:
                    self.coarse[one] = Coarse(1, at)
                    self.flow.filled_blocks += 1
            self.flow.stored_blocks += len(hashes)
            self._tokens(len(hashes) * self.coarse_size)
            self.coarse_stores.append(store)
            return
        for one in hashes:
            if one in self.fine:
                self.fine[one].announced = at
                self.flow.reannounced_blocks += 1
            else:
                self.fine[one] = Fine(at, at)
                self.flow.stored_blocks += 1
                self.flow.filled_blocks += 1
                self._tokens(self.fine_size)
        self._link(store)
        self.fine_stores.append(store)

    def remove(self, hashes: tuple[int, ...], at: float) -> None:
        """Take a copy of each hash away: a coarse block if there is one, else a fine one."""
        for one in hashes:
            if one in self.coarse:
                coarse = self.coarse[one]
                self.flow.removed_blocks += 1
                coarse.copies -= 1
                if not coarse.copies:
                    del self.coarse[one]
                    self._uncover(one, coarse)
                    self.flow.evicted(self.coarse_size, at - coarse.since)
            elif one in self.fine:
                fine = self.fine.pop(one)
                self.flow.removed_blocks += 1
                if not fine.covered_by:
                    self.flow.evicted(self.fine_size, at - fine.since)
            else:
                self.flow.unknown_removed_blocks += 1
        self._forget_contents()

    def _counting(self) -> set[int]:
        """Return the blocks that count by themselves."""
        return {one for one, fine in self.fine.items() if not fine.covered_by} | self.coarse.keys()

    def _forget_contents(self) -> None:
        if self.contents:
            for one in self.contents.keys() - self._counting():
                del self.contents[one]

    def clear(self, _at: float) -> None:
        """Drop every block; nothing waits to be paired then."""
        copies = sum(coarse.copies for coarse in self.coarse.values())
        self.flow.cleared_blocks += copies + sum(not fine.covered_by for fine in self.fine.values())
        self.contents.clear()
        self.at_least = False
        self.coarse.clear()
        self.fine.clear()
        self.fine_stores.clear()
        self.coarse_stores.clear()

    def window_began(self, before: float) -> None:
        """Drop uncovered fine blocks that were past the age limit at `before`, the end of the last window."""
        for one, fine in list(self.fine.items()):
            if not fine.covered_by and fine.announced <= before - self.age:
                del self.fine[one]
                self.flow.expired_blocks += 1
        self._forget_contents()

    def residency_sums(self) -> ResidencySums:
        """Return what is resident, without changes: those depend on when checkpoints were made."""
        named = [self.contents.get(one, one) for one in self._counting()]
        return ResidencySums(Resident.of(named), None)

    def life_began(self) -> None:
        """Do nothing: changes are not kept here."""

    def held(self, at: float) -> list[Held]:
        """Return both granularities; fine blocks past the age limit at `at` no longer count."""
        copies = sum(coarse.copies for coarse in self.coarse.values())
        blocks = len(self.coarse)
        alone = sum(not f.covered_by and f.announced > at - self.age for f in self.fine.values())
        covered = sum(bool(fine.covered_by) for fine in self.fine.values())
        return [
            Held(self.coarse_size, copies, blocks, blocks * self.coarse_size),
            Held(self.fine_size, alone, alone, alone * self.fine_size, covered),
        ]

    def batch_ended(self) -> None:
        """Pair the waiting coarse stores, oldest first; the newest of those left keep waiting."""
        self._no_depth.clear()
        self._hopeless.clear()
        self.coarse_stores = _newest([store for store in self.coarse_stores if not self._paired(store)])
        self.fine_stores = _newest(self.fine_stores)
        self._forget_contents()

    def shed(self, blocks: int) -> int:
        """Drop at least `blocks` uncovered fine blocks, if there are so many: those announced longest ago.

        Those announced at the same time as the last of them go, too. Return how many went.
        """
        announced = sorted(fine.announced for fine in self.fine.values() if not fine.covered_by)
        if not announced:
            return 0
        last = announced[:blocks][-1]
        going = [one for one, f in self.fine.items() if not f.covered_by and f.announced <= last]
        for one in going:
            del self.fine[one]
        self._forget_contents()
        self.flow.expired_blocks += len(going)
        return len(going)

    def _tokens(self, tokens: int) -> None:
        """Count tokens, less those owed."""
        taken_back = min(self.flow.stored_tokens + tokens, self.tokens_owed)
        self.flow.stored_tokens += tokens - taken_back
        self.tokens_owed -= taken_back

    def _link(self, store: Store) -> None:
        """Chain each fine block of a store to the one before it; a position that is known stays."""
        parent = store.parent
        for one in store.hashes:
            if one in self.fine and self.fine[one].depth is None:
                self.fine[one].parent = parent
                self.fine[one].depth = 1 if parent is None else None
            parent = one

    def _depth(self, one: int) -> int | None:
        """Return the position of a block in its sequence, if its chain leads to one with a known position."""
        path: list[Fine] = []
        seen: set[int] = set()
        at: int | None = one
        while at is not None and at in self.fine and at not in seen and at not in self._no_depth:
            seen.add(at)
            fine = self.fine[at]
            if fine.depth is not None:
                for steps, below in enumerate(reversed(path), 1):
                    below.depth = fine.depth + steps
                return self.fine[one].depth
            path.append(fine)
            at = fine.parent
        self._no_depth |= seen
        return None

    def _back(self, tail: int, length: int) -> list[int] | None:
        """Return `length` fine blocks from `tail` towards the start; None if one is missing or repeats."""
        chain: list[int] = []
        seen: set[int] = set()
        at: int | None = tail
        while len(chain) < length:
            if at is None or at not in self.fine or at in seen:
                return None
            chain.append(at)
            seen.add(at)
            at = self.fine[at].parent
        return chain

    def _paired(self, store: Store) -> bool:
        """Cover the fine blocks that a coarse store holds; return whether they are known."""
        tails = self._tails_known(store)
        if not tails:
            coarse_parent = None if store.parent is None else self.coarse.get(store.parent)
            before = None if coarse_parent is None else coarse_parent.tail
            left = [one for one in self.fine_stores if one.number not in self._hopeless]
            for fine_store in sorted(left, key=lambda one: (abs(one.number - store.number), -one.number)):
                tails = self._tails_in(store, fine_store, before)
                if tails:
                    break
        for one, tail in zip(store.hashes, tails, strict=False):
            if one in self.coarse:
                self.coarse[one].tail = tail
                self._cover(one, tail)
        return bool(tails)

    def _tails_known(self, store: Store) -> list[int]:
        """Return tails if all blocks have the hashes of fine blocks, or had a copy that was paired."""
        tails: list[int] = []
        for one in store.hashes:
            coarse = self.coarse.get(one)
            tail = one if one in self.fine else None if coarse is None else coarse.tail
            if tail is None or self._back(tail, self.in_coarse) is None:
                return []
            tails.append(tail)
        return tails

    def _tails_in(self, store: Store, fine_store: Store, before: int | None) -> list[int]:
        """Return tails if a block of the fine store ends the coarse store: the last one that fits.

        It fits if nothing covers it, if it ends a coarse block, and if as many fine blocks as the coarse
        store holds lead back to the start of the sequence (no coarse parent), or to the end of what the
        coarse parent covers (`before`, where known).
        """
        length = len(store.hashes) * self.in_coarse
        base = None if before is None else self._depth(before)
        may_end = False
        for candidate in reversed(fine_store.hashes):
            depth = self._depth(candidate)
            if depth is None or depth % self.in_coarse:
                continue
            may_end = True
            if self.fine[candidate].covered_by:
                continue
            if store.parent is None and depth != length:
                continue
            if base is not None and depth != base + length:
                continue
            chain = self._back(candidate, length)
            if not chain or (base is not None and self.fine[chain[-1]].parent != before):
                continue
            return chain[:: self.in_coarse][::-1]
        if not may_end:
            self._hopeless.add(fine_store.number)
        return []

    def _cover(self, one: int, tail: int) -> None:
        for part in self._back(tail, self.in_coarse) or ():
            fine = self.fine[part]
            if one in fine.covered_by:
                continue
            if not fine.covered_by:
                # Its tokens were counted when it came, and again with the coarse block.
                self.tokens_owed += self.fine_size
                self._tokens(0)
            fine.covered_by.add(one)
            self.coarse[one].covers.append(part)

    def _uncover(self, one: int, coarse: Coarse) -> None:
        """Drop the fine blocks that only this coarse block covered: they leave with it."""
        for part in coarse.covers:
            fine = self.fine.get(part)
            if fine is not None and one in fine.covered_by:
                fine.covered_by.remove(one)
                if not fine.covered_by:
                    del self.fine[part]


def _newest(stores: list[Store]) -> list[Store]:
    """Return the newest stores that are remembered, oldest first."""
    kept: list[Store] = []
    for store in reversed(stores[-WAITING:]):
        if sum(len(one.hashes) for one in [*kept, store]) > WAITING_HASHES:
            break
        kept.insert(0, store)
    return kept


Pools = Mapping[tuple[str, int], Copies | TwoSizes]
"""What a source holds, by medium and group."""
