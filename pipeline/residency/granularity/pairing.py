"""Which coarse block covers which fine blocks.

It is nowhere on the wire. Both chains describe the same tokens,
so the coarse block that ends at token n * coarse of its chain covers the fine blocks before the fine
block that ends at the same token of the fine chain. An engine announces both chains of a request in the
same step: a coarse store is paired with the nearest recent fine store that contains the boundary, is not
covered yet, and continues the fine chain that the coarse parent was paired with.
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas.checkpoints import CoarseStore, FineBlock, FineStore, GranularState


def chain(state: GranularState, tail: int, length: int) -> list[int] | None:
    """Return `length` fine blocks from `tail` backwards, None if one of them is not known or comes twice."""
    blocks: dict[int, None] = {}
    at: int | None = tail
    while len(blocks) < length:
        fine = state.fine.get(at) if at is not None else None
        if at is None or fine is None or at in blocks:
            return None
        blocks[at] = None
        at = fine.parent
    return list(blocks)


def link(state: GranularState, hashes: Iterable[int], parent: int | None) -> None:
    """Set the parents of fine blocks that stand in a chain after `parent`."""
    for block in hashes:
        fine = state.fine.get(block)
        if fine is not None and fine.depth is None:
            fine.parent = parent
            fine.depth = 1 if parent is None else None
        parent = block


def tails_of(state: GranularState, store: CoarseStore) -> list[int]:
    """Return the fine block that ends each block of a coarse store, empty while it is not known."""
    tails = _known_tails(state, store)
    if tails:
        return tails
    parent = state.coarse.get(store.parent) if store.parent is not None else None
    before = parent.tail if parent is not None else None
    nearest = sorted(state.fine_stores, key=lambda fine: (abs(fine.number - store.number), -fine.number))
    for fine_store in nearest:
        tails = _tails_in(state, store, fine_store, before)
        if tails:
            break
    return tails


def _per_block(state: GranularState) -> int:
    return state.coarse_size // state.fine_size


def _known_tails(state: GranularState, store: CoarseStore) -> list[int]:
    """Return the tails of another copy's pairing, or the blocks themselves where they are fine too."""
    tails = []
    for block in store.hashes:
        coarse = state.coarse.get(block)
        tail = block if block in state.fine else coarse.tail if coarse is not None else None
        if tail is None or chain(state, tail, _per_block(state)) is None:
            return []
        tails.append(tail)
    return tails


def _tails_in(
    state: GranularState, store: CoarseStore, fine_store: FineStore, before: int | None
) -> list[int]:
    """Return the fine block that ends each coarse block, empty if this cannot be the store's chain.

    `before` is the tail of the coarse parent, if it is known.
    """
    per_block = _per_block(state)
    length = len(store.hashes) * per_block
    base = _depth(state, before) if before is not None else None
    for candidate in reversed(fine_store.hashes):
        fine = state.fine.get(candidate)
        depth = _depth(state, candidate)
        if fine is None or fine.covers or depth is None or depth % per_block:
            continue
        if store.parent is None and depth != length:
            continue
        if base is not None and depth != base + length:
            continue
        blocks = chain(state, candidate, length)
        if not blocks or (base is not None and state.fine[blocks[-1]].parent != before):
            continue
        return blocks[::per_block][::-1]
    return []


def _depth(state: GranularState, block: int) -> int | None:
    """Return how many fine blocks the sequence has up to and including this one, if that is known.

    A parent may be announced (again) after its child, so depths are looked up when they are needed. A
    chain that bites its own tail, which no engine makes, has no depth.
    """
    path: dict[int, FineBlock] = {}
    at: int | None = block
    depth: int | None = None
    while at is not None:
        fine = state.fine.get(at)
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
