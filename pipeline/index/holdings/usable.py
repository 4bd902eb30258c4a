"""What an engine can use of a chain of blocks: the prefix of which each of its groups holds what it needs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from connectors.process.compiled import compiled, inlined
from pipeline.index.holdings.words import NOTHING

NOBODY: Final = -1
"""Instead of a number: none."""
GPU, CPU, DISK = 0, 1, 2
"""Tiers, in the order in which an engine looks."""
WHOLE: Final = 0
"""Window of a group that needs every block of the prefix."""
LAST_BLOCK: Final = -1
"""Window of a group that needs the last block of the prefix only, as Mamba's state."""
UNTOLD: Final = -2
"""Window of a group that looks back a part of the prefix, and nobody says how much of it."""
NOT_NAMED: Final = -3
"""Window of a group whose kind nobody names: WHOLE if it is the only one of its tier, UNTOLD otherwise."""
LEAVE_UNSAID: Final = 1
IN_CHUNKS: Final = 2
"""Doubts about a block that a pool holds, as bits: it may have left unsaid; an engine that loads whole chunks
may hold only a part of its chunk."""

POOL: Final = np.dtype(
    [
        ("source", np.int32),  # its number, NOBODY if no source has the pool any more
        ("next", np.int32),  # the next pool of the source
        ("window", np.int32),  # tokens, WHOLE or LAST_BLOCK
        ("group", np.int32),
        ("sizes", np.int64),  # where the sizes of its size codes are
        ("size_codes", np.int64),  # how many of these it has
        ("tier", np.int8),
        ("doubts", np.int8),  # about the blocks that it holds
    ]
)

SIX: Final = 6
IN_WORD: Final = 63
"""Bit i of a mask is bit (i & IN_WORD) of its word i >> SIX."""
_ALL = ~np.uint64(0)


@inlined
def _has(masks: Any, words: int, local: int, at: int) -> bool:
    there: bool = (masks[local * words + (at >> SIX)] >> np.uint64(at & IN_WORD)) & np.uint64(1) != NOTHING
    return there


@inlined
def _leading(masks: Any, words: int, local: int, begin: int, end: int) -> int:
    """Return where the bits of a mask that are set from `begin` on end."""
    at, going = begin, True
    while going and at < end:
        left = masks[local * words + (at >> SIX)] >> np.uint64(at & IN_WORD)
        if left == _ALL >> np.uint64(at & IN_WORD):
            at = (at | IN_WORD) + 1
        else:
            while left & np.uint64(1) != NOTHING:
                left >>= np.uint64(1)
                at += 1
            going = False
    return min(at, end)


@inlined
def _announced(pools: Any, sizes: Any, number: int, block_size: int) -> bool:
    """Return whether blocks of a size ever came to a pool."""
    at = pools[number].sizes
    end = at + pools[number].size_codes
    while at < end and sizes[at] != block_size:
        at += 1
    there: bool = at < end
    return there


@inlined
def _on_gpu(pools: Any, first: int, number: int) -> int:
    """Return the pool of the GPU for the group of a pool, NOBODY if there is none."""
    other = first
    while other != NOBODY and not (pools[other].tier == GPU and pools[other].group == pools[number].group):
        other = pools[other].next
    return other


@compiled
def _would_have_a_say(pools: Any, sizes: Any, first: int, number: int, block_size: int) -> bool:
    """Return whether a pool that holds nothing of a chain is one that its blocks come to.

    Groups whose blocks have another size than the chain's have other hashes. A pool that does not say the
    size of its blocks has that of its group on the GPU.
    """
    if block_size <= 0:
        return False
    if _announced(pools, sizes, number, block_size):
        return True
    gpu = _on_gpu(pools, first, number)
    return gpu != NOBODY and _announced(pools, sizes, number, 0) and _announced(pools, sizes, gpu, block_size)


@compiled
def _window(pools: Any, first: int, number: int) -> int:
    """Return the window of a pool's group, which its pool of the GPU may say alone."""
    window: int = pools[number].window
    if window == NOT_NAMED and pools[number].tier != GPU:
        gpu = _on_gpu(pools, first, number)
        if gpu != NOBODY:
            window = pools[gpu].window
    if window == NOT_NAMED:
        window, other = WHOLE, first
        while window == WHOLE and other != NOBODY:
            if pools[other].tier == pools[number].tier and pools[other].group != pools[number].group:
                window = UNTOLD
            other = pools[other].next
    return window


@compiled
def any_untold(pools: Any, first: int) -> bool:
    """Return whether a source has groups that do not say how far they look back."""
    number = first
    while number != NOBODY and _window(pools, first, number) != UNTOLD:
        number = pools[number].next
    untold: bool = number != NOBODY
    return untold


@inlined
def _last(masks: Any, words: int, local: int, blocks: int) -> int:
    """Return where the last block of a mask ends, 0 if it has none."""
    at = blocks
    while at > 0 and not _has(masks, words, local, at - 1):
        at -= 1
    return at


@inlined
def _nowhere(pools: Any, first: int, number: int, marks: Any) -> bool:
    """Return whether the group of a pool holds nothing of a chain on the pool's tier."""
    other = first
    while other != NOBODY and not (
        marks[other] != NOBODY
        and pools[other].tier == pools[number].tier
        and pools[other].group == pools[number].group
    ):
        other = pools[other].next
    nowhere: bool = other == NOBODY
    return nowhere


@compiled
def _elsewhere(pools: Any, first: int, number: int, marks: Any, masks: Any, words: int, at: int) -> bool:
    """Return whether the group of a pool has a block on another medium below the CPU."""
    here, other = False, first
    while not here and other != NOBODY:
        here = (
            other != number
            and pools[other].tier == DISK
            and pools[other].group == pools[number].group
            and marks[other] != NOBODY
            and _has(masks, words, marks[other], at)
        )
        other = pools[other].next
    return here


@compiled
def usable_end(
    pools: Any,
    sizes: Any,
    first: int,
    marks: Any,
    masks: Any,
    words: int,
    blocks: int,
    tier: int,
    begin: int,
    block_size: int,
    at_most: np.bool_,
) -> int:
    """Return how many blocks of the beginning an engine can use if `begin` of them are on the tiers above.

    Each group that has a say on the tier has there what its attention looks at behind these. Groups that do
    not say how far they look back need all; `at_most`, none, or where there are no others, their last block.
    """
    reached, any_group, windows, untold_end = blocks, False, False, begin
    number = first
    while number != NOBODY:
        local = marks[number]
        if pools[number].tier == tier and (
            local != NOBODY or _would_have_a_say(pools, sizes, first, number, block_size)
        ):
            window = _window(pools, first, number)
            if at_most and window == UNTOLD:
                if local != NOBODY:
                    untold_end = max(untold_end, _last(masks, words, local, blocks))
            elif window != WHOLE and window != UNTOLD:
                any_group = windows = True
            else:
                any_group = True
                at = begin
                if local != NOBODY:
                    at = _leading(masks, words, local, at, reached)
                while (
                    tier == DISK
                    and at < reached
                    and _elsewhere(pools, first, number, marks, masks, words, at)
                ):
                    at += 1
                    if local != NOBODY:
                        at = _leading(masks, words, local, at, reached)
                reached = at
        number = pools[number].next
    if not any_group:
        return untold_end
    settled = not windows
    while not settled and reached > begin:
        settled = True
        number = first
        while number != NOBODY:
            local, window = marks[number], WHOLE
            if pools[number].tier == tier and (
                local != NOBODY or _would_have_a_say(pools, sizes, first, number, block_size)
            ):
                window = _window(pools, first, number)
            if window in (WHOLE, UNTOLD):
                pass
            elif local == NOBODY and _nowhere(pools, first, number, marks):
                reached = begin
            else:
                needed = 1
                if window > 1 and block_size > 0:
                    needed = (window - 1 + block_size - 1) // block_size
                needed_from = max(begin, reached - needed)
                at = reached - 1
                while at >= needed_from and (
                    (local != NOBODY and _has(masks, words, local, at))
                    or (tier == DISK and _elsewhere(pools, first, number, marks, masks, words, at))
                ):
                    at -= 1
                if at >= needed_from:
                    # No prefix that ends behind the missing block has a whole window before the end.
                    reached, settled = at, False
            number = pools[number].next
    return reached


@compiled
def doubts_about(
    pools: Any, first: int, marks: Any, masks: Any, words: int, tier: int, begin: int, end: int
) -> int:
    """Return the doubts about these blocks on a tier."""
    doubts = 0
    number = first
    while number != NOBODY:
        if pools[number].tier == tier and pools[number].doubts != 0 and marks[number] != NOBODY:
            at = begin
            while at < end and not _has(masks, words, marks[number], at):
                at += 1
            if at < end:
                doubts |= pools[number].doubts
        number = pools[number].next
    return doubts
