"""Tokens that more than one source holds, by prefix, from a scan of all blocks.

Two passes in bounded memory, whose result does not depend on the order of the blocks. The first, over all
blocks, adds up copies in a fixed number of sums, by a hash of the prefix: no prefix has more than its sum.
The second, over blocks of several sources, counts exactly the prefixes under the largest sums.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import borrowed, compiled
from pipeline.fleet.kernel.counts import counted_owners
from pipeline.fleet.kernel.refills import slot_of_prefix
from pipeline.fleet.kernel.tables import I64, U32, U64, Blocks, Bools

SHARED: Final = np.dtype(
    [
        # First block of the chain; 0: a free slot.
        ("root", "<u8"),
        # Tokens of blocks that several sources hold: the copies beyond the first, and each block once.
        ("duplicated", "<i8"),
        ("shared", "<i8"),
        # Number of the hash domain, group and LoRA.
        ("lineage", "<u2"),
        # The most sources that hold one of its blocks.
        ("owners", "<u2"),
        # Depth of the deepest block that several sources hold.
        ("depth", "<u2"),
    ],
    align=True,
)
SUMS: Final = 1 << 16
LARGEST_SUMS: Final = 2048
PREFIXES: Final = 1 << 14
"""Most prefixes that are counted exactly; the table has twice as many slots."""
AT_ONCE: Final = 1024
"""Slots scanned for blocks before these are added up."""


def shared_prefixes(
    blocks: Blocks,
    asked: npt.NDArray[Any],
    *,
    sums: int = SUMS,
    largest: int = LARGEST_SUMS,
    prefixes: int = PREFIXES,
) -> tuple[npt.NDArray[Any], int]:
    """Return rows of SHARED and a bound: a prefix that is not among them has no more duplicated tokens.

    `asked`, fewer than `prefixes`, has the fields `root` and `lineage` of prefixes to count in any case.
    The bound is at most (duplicated tokens) / `largest`, unless a sum has very many prefixes.
    `sums` is a power of two.
    """
    named, is_asked = np.zeros(2 * prefixes, SHARED), np.zeros(sums, np.bool_)
    _ask(asked["root"].astype(np.uint64), asked["lineage"].astype(np.int64), named, is_asked)
    by_sum, several = np.zeros(sums, np.int64), np.empty(len(blocks), np.uint32)
    several = several[: _add_copies(blocks, is_asked, named, by_sum, several)]
    while True:
        bound = _bound(by_sum, largest)
        found = named.copy()
        if _count(blocks, several, by_sum > bound, is_asked, found, len(asked), prefixes):
            return found[found["root"] != 0], bound
        largest //= 2


def _bound(by_sum: I64, largest: int) -> int:
    """Return the largest sum that is not among the `largest` largest."""
    # Most are 0, and with them partitioning would take a hundred times as long.
    sums = by_sum[by_sum > 0]
    return int(np.partition(sums, -1 - largest)[-1 - largest]) if len(sums) > largest else 0


@compiled
def _sum_of(root: np.uint64, lineage: int, sums: int) -> int:
    mixed = (root ^ np.uint64(lineage)) * np.uint64(0xD6E8FEB86659FD93)
    number: int = np.int64((mixed >> np.uint64(32)) & np.uint64(sums - 1))
    return number


@compiled
def _ask(roots: U64, lineages: I64, named: Any, is_asked: Bools) -> None:
    """Add a row for each prefix to `named`, which has none of them, and mark their sums."""
    for number in range(len(roots)):
        slot = -1 - slot_of_prefix(named, (roots[number], lineages[number]))
        named[slot].root = roots[number]
        named[slot].lineage = lineages[number]
        is_asked[_sum_of(roots[number], lineages[number], len(is_asked))] = True


@compiled
def _add_copies(blocks: Blocks, is_asked: Bools, named: Any, by_sum: I64, several: U32) -> int:
    """Add up copies beyond the first, and write the slots of blocks that have any to `several`.

    A block of one source matters only to prefixes that were asked for: others are found by blocks that
    several sources hold. Return how many slots were written.
    """
    blocks, by_sum, several = borrowed(blocks), borrowed(by_sum), borrowed(several)
    is_asked, named = borrowed(is_asked), borrowed(named)
    held = np.empty(AT_ONCE, np.uint32)
    noted = 0
    for begin in range(0, len(blocks), AT_ONCE):
        # In a loop of its own and without branches, as no processor can predict which slots are free.
        count = 0
        for at in range(begin, min(begin + AT_ONCE, len(blocks))):
            held[count] = at
            block = blocks[at]
            count += (block.key != np.uint64(0)) & (block.root != np.uint64(0)) & (block.owners != 0)
        for at in held[:count]:
            root = blocks[at].root
            number = _sum_of(root, blocks[at].lineage, len(by_sum))
            owners = counted_owners(np.int64(blocks[at].owners), np.int64(blocks[at].received))
            by_sum[number] += (owners - 1) * np.int64(blocks[at].size)
            several[noted] = at
            noted += owners > 1
            if is_asked[number] and owners == 1:
                slot = slot_of_prefix(named, (root, np.int64(blocks[at].lineage)))
                if slot >= 0:
                    named[slot].owners = 1
    return noted


@compiled
def _count(
    blocks: Blocks, several: U32, is_large: Bools, is_asked: Bools, found: Any, used: int, limit: int
) -> bool:
    """Count blocks of several sources in `found`; return False if more than `limit` prefixes come together.

    Most blocks are skipped by their sum alone.
    """
    blocks, several, found = borrowed(blocks), borrowed(several), borrowed(found)
    is_large, is_asked = borrowed(is_large), borrowed(is_asked)
    for at in several:
        owners = counted_owners(np.int64(blocks[at].owners), np.int64(blocks[at].received))
        root, lineage = blocks[at].root, blocks[at].lineage
        number = _sum_of(root, lineage, len(is_large))
        if not (is_large[number] or is_asked[number]):
            continue
        slot = slot_of_prefix(found, (root, np.int64(lineage)))
        if slot < 0:
            if not is_large[number]:
                continue
            if used == limit:
                return False
            used += 1
            slot = -1 - slot
            found[slot].root = root
            found[slot].lineage = lineage
        size = np.int64(blocks[at].size)
        found[slot].owners = max(found[slot].owners, owners)
        found[slot].shared += size
        found[slot].duplicated += (owners - 1) * size
        found[slot].depth = max(found[slot].depth, blocks[at].depth)
    return True
