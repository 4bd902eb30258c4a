"""What a source holds on one medium for one group, copy by copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import NamedTuple

from pipeline.verify.replica.flow import Flow
from pipeline.verify.replica.residency_sums import Changes, ResidencySums, Resident
from schemas.hashing.content import UNKNOWN, follow
from schemas.residency import CLEARED, EVICTED, FILLED, GENERATED, RETURNED

REMEMBERED_STORES = 256
REMEMBERED_HASHES = 16_384
"""Blocks, at most, in the remembered stores of all pools of a source together."""


class Held(NamedTuple):
    """What is held of one block size."""

    block_size: int
    entries: int
    blocks: int
    tokens: int
    covered_blocks: int = 0


class FirstStore(NamedTuple):
    """One of the first stores of a pool."""

    parent: int | None
    hashes: tuple[int, ...]


class Again(NamedTuple):
    """A block that was announced again while it was held: copies of one size that may exist in addition."""

    size: int
    copies: int
    since: float
    """Event time of the first of them."""
    content: int
    """Content hash, by the links of that store from the beginning of its chain; UNKNOWN: none."""


class Block(NamedTuple):
    """How a hash is held; blocks that came with one event share theirs, until one of them changes."""

    sizes: tuple[int, ...]
    """Block size of each copy, oldest first."""
    since: float
    """Event time of the first copy."""


class Copies:
    """Physical copies of every hash. A hash counts as a block of its first copy's size."""

    def __init__(self, *, store_only: bool) -> None:
        """`store_only`: what leaves is not announced, so figures are upper bounds."""
        self.flow = Flow()
        self.blocks: dict[int, Block] = {}
        self.contents: dict[int, int] = {}
        """Content hash of each block that had one when it was filled: changes name it by that."""
        self.entries_of_size: Counter[int] = Counter()
        self.blocks_of_size: Counter[int] = Counter()
        self.sizes: list[int] = []
        """Every block size ever announced, in that order."""
        self.announced_several: set[int] = set()
        """Sizes of which one event announced several blocks."""
        self.removed_sizes: set[int] = set()
        """Sizes of which the engine removed a copy."""
        self.store_only = store_only
        self.removal_seen = False
        self.changes = Changes()
        """Of the present session."""
        self._kept = Resident()
        """What outlived earlier sessions."""
        self.stored_tokens = 0
        """Of all sessions."""
        self.first_stores: list[FirstStore] = []
        """The first stores here, as long as no removal was announced; clears do not matter."""
        self.remembered_hashes = 0
        """Blocks in them."""
        self.other_sizes = 0
        """Copies of another size than the first one of their block."""
        self.at_least = False
        """Whether a store was taken for a re-announcement since the last clear."""
        self.again: dict[int, Again] = {}
        """Those blocks. If it is empty though `at_least` is set, there were some that are no longer known."""

    def announced(self, hashes: tuple[int, ...], block_size: int) -> bool:
        """Note a store before it counts; return whether its size, or several blocks of it at once, is new."""
        new = block_size not in self.sizes
        if new:
            self.sizes.append(block_size)
        if len(hashes) > 1 and block_size not in self.announced_several:
            self.announced_several.add(block_size)
            new = True
        return new

    def overlapping_sizes(self, announced: int) -> tuple[int, int] | None:
        """Return (coarse, fine) if a store that `announced` something new makes two granularities overlap.

        Fine is the smallest size that was announced several blocks at a time, was never removed, divides
        `announced`, and has a larger multiple among the sizes. Coarse is the smallest of these multiples.
        """
        for fine in sorted(self.announced_several - self.removed_sizes):
            if 0 < fine <= announced and announced % fine == 0:
                coarse = [size for size in self.sizes if size > fine and size % fine == 0]
                if coarse:
                    return min(coarse), fine
        return None

    def remember(self, hashes: tuple[int, ...], parent: int | None, elsewhere: int) -> None:
        """Remember one of the first stores; `elsewhere`: blocks in those of other pools."""
        if self.removal_seen or len(self.first_stores) >= REMEMBERED_STORES:
            return
        if self.remembered_hashes + elsewhere + len(hashes) <= REMEMBERED_HASHES:
            self.first_stores.append(FirstStore(parent, hashes))
            self.remembered_hashes += len(hashes)

    def named(self, blocks: Iterable[int]) -> list[int]:
        """Return the hashes by which changes name blocks."""
        return [self.contents.get(one, one) for one in blocks] if self.contents else list(blocks)

    def contents_along(
        self, hashes: tuple[int, ...], links: tuple[int, ...], parent: int | None
    ) -> dict[int, int]:
        """Return the content hashes of the blocks of a store, where they are known, by hash.

        They continue from the parent's, or from that of a block of the store which is held already.
        """
        found: dict[int, int] = {}
        before = UNKNOWN if parent is None else self.contents.get(parent)
        filled: set[int] = set()
        for one, linked in zip(hashes, links or (UNKNOWN,) * len(hashes), strict=True):
            content = None if before is None or linked == UNKNOWN else follow(before, linked)
            if one in self.blocks or one in filled:
                before = content or self.contents.get(one, found.get(one))
                continue
            filled.add(one)
            if content is not None:
                found[one] = content
            before = content
        return found

    def store(
        self,
        hashes: tuple[int, ...],
        block_size: int,
        at: float,
        contents: Mapping[int, int],
        *,
        may_repeat: bool,
        one_copy: bool,
        generated: bool,
    ) -> bool:
        """Count a copy of each hash, unless all are held and the store may announce them again; return if so.

        With `one_copy` each hash counts on its own, if it is not held. `contents`: content hashes of those
        that are not held, where they are known. `generated`: decoding completed the block.
        """
        if one_copy:
            new = tuple(dict.fromkeys(one for one in hashes if one not in self.blocks))
            self.flow.reannounced_blocks += len(hashes) - len(new)
            hashes = new
        if may_repeat and all(one in self.blocks for one in hashes):
            self.flow.reannounced_blocks += len(hashes)
            return bool(hashes)
        blocks, alone = self.blocks, Block((block_size,), at)
        filled: list[int] = []
        stored_before: list[int] = []
        for number, one in enumerate(hashes):
            held = blocks.get(one)
            if held is None:
                blocks[one] = alone
                if one in contents:
                    self.contents[one] = contents[one]
                filled.append(one)
                stored_before.append(self.stored_tokens + number * block_size)
            else:
                blocks[one] = held._replace(sizes=(*held.sizes, block_size))
                self.other_sizes += block_size != held.sizes[0]
        kind = GENERATED if generated else FILLED
        self.changes.count_all(kind, self.named(filled), at, repeat(block_size), stored_before)
        self._count_stored(block_size, len(hashes))
        self.blocks_of_size[block_size] += len(filled)
        self.flow.filled_blocks += len(filled)
        return False

    def _count_stored(self, block_size: int, copies: int) -> None:
        self.stored_tokens += copies * block_size
        self.entries_of_size[block_size] += copies
        self.flow.stored_blocks += copies
        self.flow.stored_tokens += copies * block_size

    def repeated(
        self, hashes: tuple[int, ...], size: int, at: float, links: tuple[int, ...], *, most: int
    ) -> None:
        """Remember that a store seemed to announce blocks again, and how often each was announced.

        Beyond `most` blocks, or with one in two sizes, all are forgotten; with `most` 0 none is remembered.
        """
        whole = bool(self.again) or not self.at_least
        self.at_least = True
        if not whole or not most:
            self.again.clear()
            return
        content: int | None = UNKNOWN
        for one, linked in zip(hashes, links or (UNKNOWN,) * len(hashes), strict=True):
            content = follow(content, linked) if content is not None and linked != UNKNOWN else None
            known = self.again.get(one, Again(size, 0, at, content or UNKNOWN))
            if known.size != size:
                self.again.clear()
                return
            self.again[one] = known._replace(copies=known.copies + 1)
        if len(self.again) > most:
            self.again.clear()

    def was_copied(self, one: int) -> bool:
        """Return whether a block that is not held can leave because its re-announcements were copies."""
        return (
            one in self.again
            and one not in self.blocks
            and all(
                held.sizes[0] == again.size
                for each, again in self.again.items()
                if (held := self.blocks.get(each)) is not None
            )
        )

    def count_again(self, at: float) -> None:
        """Count all remembered re-announcements: they were copies, and are there."""
        stored_before = self.stored_tokens
        for one, again in self.again.items():
            held = self.blocks.get(one)
            copies = (again.size,) * again.copies
            if held is None:
                self.blocks[one] = Block(copies, again.since)
                if again.content != UNKNOWN:
                    self.contents[one] = again.content
                self.changes.count_all(RETURNED, self.named([one]), at, [again.size], [stored_before])
                self.blocks_of_size[again.size] += 1
                self.flow.filled_blocks += 1
            else:
                self.blocks[one] = Block((*held.sizes, *copies), min(held.since, again.since))
            self._count_stored(again.size, again.copies)
        self.again.clear()
        self.at_least = False

    def remove(self, hashes: tuple[int, ...], at: float) -> None:
        """Remove one copy of each hash: the latest of another size than the first, while there is one."""
        self.removal_seen = True
        self.first_stores.clear()
        self.remembered_hashes = 0
        blocks = self.blocks
        evicted: list[int] = []
        of: list[Block] = []
        sizes: list[int] = []
        for one in hashes:
            block = blocks.get(one)
            if block is None:
                self.flow.unknown_removed_blocks += 1
            elif len(block.sizes) > 1:
                others = [at for at, size in enumerate(block.sizes) if size != block.sizes[0]]
                self.other_sizes -= bool(others)
                left = list(block.sizes)
                sizes.append(left.pop(others[-1] if others else -1))
                blocks[one] = block._replace(sizes=tuple(left))
            else:
                del blocks[one]
                evicted.append(one)
                of.append(block)
        firsts = [block.sizes[0] for block in of]
        self.changes.count_all(EVICTED, self.named(evicted), at, firsts, repeat(self.stored_tokens))
        for one in evicted:
            self.contents.pop(one, None)
        self.blocks_of_size.subtract(firsts)
        for block, alike in Counter(of).items():
            self.flow.evicted(block.sizes[0], at - block.since, alike)
        sizes += firsts
        self.removed_sizes.update(sizes)
        self.entries_of_size.subtract(sizes)
        self.flow.removed_blocks += len(sizes)

    def clear(self, at: float) -> None:
        """Drop every block."""
        sizes = [block.sizes[0] for block in self.blocks.values()]
        self.changes.count_all(CLEARED, self.named(self.blocks), at, sizes, repeat(self.stored_tokens))
        self.flow.cleared_blocks += sum(self.entries_of_size.values())
        self.blocks.clear()
        self.contents.clear()
        self.other_sizes = 0
        self.at_least = False
        self.again.clear()
        self.entries_of_size.clear()
        self.blocks_of_size.clear()

    def held(self, at: float) -> list[Held]:
        """Return what is held, for every size ever announced."""
        return [
            Held(
                size, self.entries_of_size[size], self.blocks_of_size[size], self.blocks_of_size[size] * size
            )
            for size in self.sizes
        ]

    def residency_sums(self) -> ResidencySums:
        """Return what the residency topic must add up to for the present session, as of now."""
        now = Resident.of(self.named(self.blocks))
        return ResidencySums(now - self._kept, self.changes.copy())

    def life_began(self) -> None:
        """Begin a session, with no changes."""
        self.changes = Changes()
        self._kept = Resident.of(self.named(self.blocks))
