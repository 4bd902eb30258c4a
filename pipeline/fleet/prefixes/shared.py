"""Tokens that more than one source holds, by prefix, from a look at all blocks.

Two passes in bounded memory, whose result does not depend on the order of the blocks. The first adds the
copies up in as many sums as there are, by a hash of the prefix: no prefix has more than its sum. The second
counts exactly what falls under the largest sums.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import compiled
from pipeline.fleet.kernel.refills import slot_of_prefix
from pipeline.fleet.kernel.tables import I64, Blocks

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
    """
    by_sum = np.zeros(sums, np.int64)
    _add_copies(blocks, by_sum)
    while True:
        bound = int(np.partition(by_sum, -1 - largest)[-1 - largest])
        found = np.zeros(2 * prefixes, SHARED)
        for row in asked:
            slot = slot_of_prefix(found, row["root"], int(row["lineage"]))
            found[-1 - slot]["root"], found[-1 - slot]["lineage"] = row["root"], row["lineage"]
        if _count(blocks, by_sum, bound, found, len(asked), prefixes):
            return found[found["root"] != 0], bound
        largest //= 2


@compiled
def _sum_of(root: np.uint64, lineage: int, sums: int) -> int:
    mixed = (root ^ np.uint64(lineage)) * np.uint64(0xD6E8FEB86659FD93)
    number: int = np.int64((mixed >> np.uint64(32)) % np.uint64(sums))
    return number


@compiled
def _add_copies(blocks: Blocks, by_sum: I64) -> None:
    for at in range(len(blocks)):
        block = blocks[at]
        if block.key != np.uint64(0) and block.owners > 1 and block.root != np.uint64(0):
            number = _sum_of(block.root, block.lineage, len(by_sum))
            by_sum[number] += (np.int64(block.owners) - 1) * np.int64(block.size)


@compiled
def _count(blocks: Blocks, by_sum: I64, bound: int, found: Any, used: int, limit: int) -> bool:
    """Fill `found`; return False if more prefixes than `limit` have a sum above the bound."""
    for at in range(len(blocks)):
        block = blocks[at]
        if block.key == np.uint64(0) or block.owners == 0 or block.root == np.uint64(0):
            continue
        slot = slot_of_prefix(found, block.root, block.lineage)
        if slot < 0:
            if block.owners == 1 or by_sum[_sum_of(block.root, block.lineage, len(by_sum))] <= bound:
                continue
            if used == limit:
                return False
            used += 1
            slot = -1 - slot
            found[slot].root = block.root
            found[slot].lineage = block.lineage
        found[slot].owners = max(found[slot].owners, block.owners)
        if block.owners > 1:
            size = np.int64(block.size)
            found[slot].shared += size
            found[slot].duplicated += (np.int64(block.owners) - 1) * size
            found[slot].depth = max(found[slot].depth, block.depth)
    return True
