"""The changes of a pool in a residency record, as columns."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from schemas.hashes import unpack_hashes
from schemas.residency import FILLS, SUBSUMED, ResidencyChanges


class Chain(NamedTuple):
    """A block's place in its chain, in which each block depends on those before it."""

    root: int = 0
    """The first block; 0 where that is not known."""
    depth: int = 0
    """Blocks up to and including this one."""
    lora: str = ""


NO_CHAIN = Chain()


class Columns(NamedTuple):
    """n changes of `schemas.residency.ResidencyChanges`, in the order in which they are in the record."""

    hashes: Sequence[int]
    kinds: bytes
    times: Sequence[float]
    sizes: Sequence[int]
    stored: Sequence[int | None]
    """Tokens stored in the pool before."""


def columns_of(pool: ResidencyChanges) -> Columns:
    """Return the columns of all changes."""
    count = len(pool.kinds)
    stored: Sequence[int | None] = [None] * count
    if pool.stored:
        stored = [pool.stored_before + more for more in struct.unpack(f"<{count}I", pool.stored)]
    return Columns(
        unpack_hashes(pool.hashes),
        pool.kinds,
        struct.unpack(f"<{count}d", pool.times),
        struct.unpack(f"<{count}I", pool.block_sizes),
        stored,
    )


def chains_of(pool: ResidencyChanges) -> Sequence[Chain]:
    """Return the chain of every change; only fills have one."""
    fills = sum(kind in FILLS for kind in pool.kinds)
    if not pool.roots and not pool.lora_codes:
        return [NO_CHAIN] * len(pool.kinds)
    roots = unpack_hashes(pool.roots) if pool.roots else [0] * fills
    depths = struct.unpack(f"<{fills}H", pool.depths) if pool.depths else [0] * fills
    codes = struct.unpack(f"<{fills}H", pool.lora_codes) if pool.lora_codes else [0] * fills
    loras = ("", *pool.loras)
    of_fills = map(Chain, roots, depths, [loras[code] for code in codes])
    if fills == len(pool.kinds):
        return list(of_fills)
    return [next(of_fills) if kind in FILLS else NO_CHAIN for kind in pool.kinds]


def ends_of(pool: ResidencyChanges) -> Sequence[int]:
    """Return for every change the last block of the run that it was filled with, 0 where there is none."""
    ends = iter(unpack_hashes(pool.ends))
    return [next(ends, 0) if kind in FILLS else 0 for kind in pool.kinds]


def counting(columns: Columns) -> Iterable[int]:
    """Return which changes count: all but fine blocks that a coarse one takes over in the same record."""
    every = range(len(columns.kinds))
    if SUBSUMED not in columns.kinds:
        return every
    left_out: set[int] = set()
    filled: dict[int, int] = {}
    for index, (kind, block) in enumerate(zip(columns.kinds, columns.hashes, strict=True)):
        if kind in FILLS:
            filled[block] = index
        elif kind == SUBSUMED and block in filled:
            left_out |= {index, filled.pop(block)}
    return [index for index in every if index not in left_out]
