"""Tokens that more than one source holds, by prefix, from a look at all blocks.

Two passes in bounded memory, whose result does not depend on the order of the blocks. The first adds the
copies up in as many sums as there are, by a hash of the prefix: no prefix has more than its sum. The second
counts exactly what falls under the largest sums.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import borrowed, compiled
from pipeline.fleet.kernel.refills import slot_of_prefix
from pipeline.fleet.kernel.tables import I64, U8, U64, Blocks

SHARED: Final = np.dtype(
    [
        # First block of the chain; 0: a free slot.
        ("root", "<u8"),
        # Tokens of blocks that several sources hold: the copies beyond the first, and each block once.
        ("duplicated", "<i8"),
        ("shared", "<i8"),
        # Number of the hash domain, group and LoRA.
        ("lineage", "<u2"),
        # The most that hold one of its blocks.
        ("owners", "<u2"),
        # Of the deepest block that several hold.
        ("depth", "<u2"),
    ],
    align=True,
)
SUMS: Final = 1 << 16
LARGEST_SUMS: Final = 2048
PREFIXES: Final = 1 << 14
"""Counted exactly at most; the table has twice as many slots."""

# Why prefixes of a sum are looked at, as bits.
_LARGE: Final = 1
_ASKED: Final = 2


def shared_prefixes(
    blocks: Blocks,
    asked: npt.NDArray[Any],
    *,
    sums: int = SUMS,
    largest: int = LARGEST_SUMS,
    prefixes: int = PREFIXES,
) -> tuple[npt.NDArray[Any], int]:
    """Return rows of SHARED and a bound: a prefix that is not among them has no more duplicated tokens.

    `asked`, with the fields `root` and `lineage`, names prefixes to be counted in any case; fewer than
    `prefixes`. The bound is at most (duplicated tokens) / `largest`, unless a sum has very many prefixes.
    `sums` is a power of two.
    """
    by_sum = np.zeros(sums, np.int64)
    _add_copies(blocks, by_sum)
    while True:
        bound = int(np.partition(by_sum, -1 - largest)[-1 - largest])
        found = np.zeros(2 * prefixes, SHARED)
        looked_at = np.where(by_sum > bound, _LARGE, 0).astype(np.uint8)
        _ask(asked["root"].astype(np.uint64), asked["lineage"].astype(np.int64), found, looked_at)
        if _count(blocks, looked_at, found, len(asked), prefixes):
            return found[found["root"] != 0], bound
        largest //= 2


@compiled
def _sum_of(root: np.uint64, lineage: int, sums: int) -> int:
    mixed = (root ^ np.uint64(lineage)) * np.uint64(0xD6E8FEB86659FD93)
    number: int = np.int64((mixed >> np.uint64(32)) & np.uint64(sums - 1))
    return number


@compiled
def _add_copies(blocks: Blocks, by_sum: I64) -> None:
    blocks, by_sum = borrowed(blocks), borrowed(by_sum)
    for at in range(len(blocks)):
        owners, root = blocks[at].owners, blocks[at].root
        if owners > 1 and blocks[at].key != np.uint64(0) and root != np.uint64(0):
            number = _sum_of(root, blocks[at].lineage, len(by_sum))
            by_sum[number] += (np.int64(owners) - 1) * np.int64(blocks[at].size)


@compiled
def _ask(roots: U64, lineages: I64, found: Any, looked_at: U8) -> None:
    """Give prefixes that `found` does not have a row in it."""
    for number in range(len(roots)):
        slot = -1 - slot_of_prefix(found, roots[number], lineages[number])
        found[slot].root = roots[number]
        found[slot].lineage = lineages[number]
        looked_at[_sum_of(roots[number], lineages[number], len(looked_at))] |= _ASKED


@compiled
def _count(blocks: Blocks, looked_at: U8, found: Any, used: int, limit: int) -> bool:
    """Fill `found`; return False if more prefixes than `limit` have a large sum.

    Most blocks are passed over by their sum alone. A block of one source tells something of a prefix only
    that was asked for: others are found because several hold a block.
    """
    blocks, looked_at, found = borrowed(blocks), borrowed(looked_at), borrowed(found)
    for at in range(len(blocks)):
        owners, root = blocks[at].owners, blocks[at].root
        if owners == 0 or root == np.uint64(0) or blocks[at].key == np.uint64(0):
            continue
        lineage = blocks[at].lineage
        why = looked_at[_sum_of(root, lineage, len(looked_at))]
        if why == 0 or (owners == 1 and not why & _ASKED):
            continue
        slot = slot_of_prefix(found, root, lineage)
        if slot < 0:
            if owners == 1 or not why & _LARGE:
                continue
            if used == limit:
                return False
            used += 1
            slot = -1 - slot
            found[slot].root = root
            found[slot].lineage = lineage
        found[slot].owners = max(found[slot].owners, owners)
        if owners > 1:
            size = np.int64(blocks[at].size)
            found[slot].shared += size
            found[slot].duplicated += (np.int64(owners) - 1) * size
            found[slot].depth = max(found[slot].depth, blocks[at].depth)
    return True
