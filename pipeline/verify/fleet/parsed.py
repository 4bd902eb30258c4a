"""The changes of a pool in a residency record, one by one."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from schemas.hashes import unpack_hashes
from schemas.residency import FILLED, ResidencyChanges


class Chain(NamedTuple):
    """Where a block stands among those that depend on each other."""

    root: int = 0
    """The first block; 0 where that is not known."""
    depth: int = 0
    """Blocks up to and including this one."""
    lora: str = ""


class Parsed(NamedTuple):
    """One change of `schemas.residency.ResidencyChanges`."""

    hash: int
    kind: int
    at: float
    size: int
    stored: int | None
    """Tokens stored in the pool before."""
    chain: Chain
    """Of what was filled."""


def parsed(pool: ResidencyChanges) -> Iterator[Parsed]:
    """Give the changes in the order in which they are in the record."""
    count = len(pool.kinds)
    times = struct.unpack(f"<{count}d", pool.times)
    sizes = struct.unpack(f"<{count}I", pool.block_sizes)
    stored = struct.unpack(f"<{count}I", pool.stored) if pool.stored else [None] * count
    columns = zip(unpack_hashes(pool.hashes), pool.kinds, times, sizes, stored, _chains(pool), strict=True)
    for one, kind, at, size, more, chain in columns:
        yield Parsed(one, kind, at, size, None if more is None else pool.stored_before + more, chain)


def _chains(pool: ResidencyChanges) -> Iterator[Chain]:
    """Give the chain of every change; only fills have one."""
    fills = pool.kinds.count(FILLED)
    roots = unpack_hashes(pool.roots) if pool.roots else [0] * fills
    depths = struct.unpack(f"<{fills}H", pool.depths) if pool.depths else [0] * fills
    codes = struct.unpack(f"<{fills}H", pool.lora_codes) if pool.lora_codes else [0] * fills
    loras = ("", *pool.loras)
    of_fills = iter(
        [Chain(root, depth, loras[code]) for root, depth, code in zip(roots, depths, codes, strict=True)]
    )
    for kind in pool.kinds:
        yield next(of_fills) if kind == FILLED else Chain()
