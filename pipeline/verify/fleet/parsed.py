"""The changes of a pool in a residency record, one by one."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from schemas.hashes import unpack_hashes
from schemas.residency import ResidencyChanges


class Parsed(NamedTuple):
    """One change of `schemas.residency.ResidencyChanges`."""

    hash: int
    kind: int
    at: float
    size: int
    stored: int | None
    """Tokens stored in the pool before."""


def parsed(pool: ResidencyChanges) -> Iterator[Parsed]:
    """Give the changes in the order in which they are in the record."""
    count = len(pool.kinds)
    times = struct.unpack(f"<{count}d", pool.times)
    sizes = struct.unpack(f"<{count}I", pool.block_sizes)
    stored = struct.unpack(f"<{count}I", pool.stored) if pool.stored else [None] * count
    columns = zip(unpack_hashes(pool.hashes), pool.kinds, times, sizes, stored, strict=True)
    for one, kind, at, size, more in columns:
        yield Parsed(one, kind, at, size, None if more is None else pool.stored_before + more)
