"""How much of a chain of blocks an engine can use: the prefix for which each group holds what it needs."""

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
"""Window of a group that needs only the last block of the prefix, such as Mamba's state."""
UNKNOWN_WINDOW: Final = -2
"""Window of a group that looks back over a part of the prefix of unknown length."""
NOT_NAMED: Final = -3
"""Window of a group whose kind is not announced: WHOLE if it is its tier's only one, else UNKNOWN_WINDOW."""
UNANNOUNCED_REMOVALS: Final = 1
IN_CHUNKS: Final = 2
"""Doubts about a block that a pool holds, as bits: it may have left without an event; an engine that loads
whole chunks may hold only a part of its chunk."""

POOL: Final = np.dtype(
    [
        ("source", np.int32),  # its number, NOBODY if no source has the pool any more
        ("next", np.int32),  # the next pool of the source
        ("window", np.int32),  # tokens, or one of the constants above
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
    """Return the end of the run of set bits that begins at `begin`."""
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
    """Return whether a pool ever announced blocks of a size."""
    at = pools[number].sizes
    end = at + pools[number].size_codes
    while at < end and sizes[at] != block_size:
        at += 1
    there: bool = at < end
    return there


@inlined
def _on_gpu(pools: Any, first: int, number: int) -> int:
    """Return the GPU's pool for the group of a pool, NOBODY if there is none."""
    other = first
    while other != NOBODY and not (pools[other].tier == GPU and pools[other].group == pools[number].group):
        other = pools[other].next
    return other


@compiled
def _could_hold(pools: Any, sizes: Any, first: int, number: int, block_size: int) -> bool:
    """Return whether a pool that holds nothing of a chain could hold its blocks, and therefore counts.

    Groups with another block size than the chain's have other hashes. A pool that does not announce its
    block size has that of its group's GPU pool.
    """
    if block_size <= 0:
        return False
    if _announced(pools, sizes, number, block_size):
        return True
    gpu = _on_gpu(pools, first, number)
    return gpu != NOBODY and _announced(pools, sizes, number, 0) and _announced(pools, sizes, gpu, block_size)


@compiled
def _window(pools: Any, first: int, number: int) -> int:
    """Return the window of a pool's group, which only the group's GPU pool may announce."""
    window: int = pools[number].window
    if window == NOT_NAMED and pools[number].tier != GPU:
        gpu = _on_gpu(pools, first, number)
        if gpu != NOBODY:
            window = pools[gpu].window
    if window == NOT_NAMED:
        window, other = WHOLE, first
        while window == WHOLE and other != NOBODY:
            if pools[other].tier == pools[number].tier and pools[other].group != pools[number].group:
                window = UNKNOWN_WINDOW
            other = pools[other].next
    return window


@compiled
def any_unknown_window(pools: Any, first: int) -> bool:
    """Return whether a source has a group whose window is unknown (UNKNOWN_WINDOW)."""
    number = first
    while number != NOBODY and _window(pools, first, number) != UNKNOWN_WINDOW:
        number = pools[number].next
    unknown: bool = number != NOBODY
    return unknown


@inlined
def _last(masks: Any, words: int, local: int, blocks: int) -> int:
    """Return where the last block of a mask ends, 0 if it has none."""
    at = blocks
    while at > 0 and not _has(masks, words, local, at - 1):
        at -= 1
    return at


@inlined
def _absent_on_tier(pools: Any, first: int, number: int, marks: Any) -> bool:
    """Return whether the group of a pool holds nothing of a chain on the pool's tier."""
    other = first
    while other != NOBODY and not (
        marks[other] != NOBODY
        and pools[other].tier == pools[number].tier
        and pools[other].group == pools[number].group
    ):
        other = pools[other].next
    absent: bool = other == NOBODY
    return absent


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
    """Return how many leading blocks an engine can use down to a tier, given `begin` of them on tiers above.

    Every group that counts on the tier must hold there what its attention needs after these. Groups with an
    UNKNOWN_WINDOW need all; with `at_most` nothing or, without other groups, as far as their last block.
    """
    reached, any_group, windows, unknown_end = blocks, False, False, begin
    number = first
    while number != NOBODY:
        local = marks[number]
        if pools[number].tier == tier and (
            local != NOBODY or _could_hold(pools, sizes, first, number, block_size)
        ):
            window = _window(pools, first, number)
            if at_most and window == UNKNOWN_WINDOW:
                if local != NOBODY:
                    unknown_end = max(unknown_end, _last(masks, words, local, blocks))
            elif window != WHOLE and window != UNKNOWN_WINDOW:
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
        return unknown_end
    # Groups that need the whole prefix have bounded it. A block that a window lacks makes the prefix shorter,
    # which moves the windows of all groups: go round until none lacks any.
    settled = not windows
    while not settled and reached > begin:
        settled = True
        number = first
        while number != NOBODY:
            local, window = marks[number], WHOLE
            if pools[number].tier == tier and (
                local != NOBODY or _could_hold(pools, sizes, first, number, block_size)
            ):
                window = _window(pools, first, number)
            if window in (WHOLE, UNKNOWN_WINDOW):
                pass
            elif local == NOBODY and _absent_on_tier(pools, first, number, marks):
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
                    # Shorter prefixes that end behind the missing block have it in their windows, too.
                    reached, settled = at, False
            number = pools[number].next
    return reached


@compiled
def doubts_about(
    pools: Any, first: int, marks: Any, masks: Any, words: int, tier: int, begin: int, end: int
) -> int:
    """Return the doubts about the blocks from `begin` to `end` on a tier."""
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
