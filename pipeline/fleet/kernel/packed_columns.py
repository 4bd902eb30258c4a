"""The packed columns of a residency record, joined over its pieces: one array per column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.fleet.kernel.tables import F64, I64, U8, U16, U32, U64
from schemas.residency import ResidencyChanges

# Columns that a piece may lack, as bits.
HAS_STORED: Final = 1
HAS_ROOTS: Final = 2
HAS_DEPTHS: Final = 4
HAS_ADAPTERS: Final = 8
HAS_ENDS: Final = 16


class PackedColumns(NamedTuple):
    """n changes, piece after piece, m of them fills; pieces without an optional column add nothing to it."""

    hashes: U64
    kinds: U8
    times: F64
    sizes: U32
    stored: U32
    """Tokens beyond `stored_before` of the piece."""
    roots: U64
    """Of fills: first block of the chain; 0 where not known."""
    depths: U16
    """Of fills: blocks of the chain up to and including it."""
    adapters: U16
    """Of fills: number of the LoRA in the piece, from 1; 0 without one."""
    ends: U64
    """Of fills: last block of the run it came with; 0: it came alone."""
    lengths: I64
    """Changes of each piece."""
    stored_before: I64
    """Tokens stored before each piece."""
    has: U8
    """Of each piece, by HAS_STORED, ..., HAS_ENDS."""


def packed_columns(parts: Sequence[ResidencyChanges]) -> PackedColumns:
    """Return the columns of the parts of a record."""
    return PackedColumns(
        _joined([part.hashes for part in parts], ">u8"),
        _joined([part.kinds for part in parts], "u1"),
        _joined([part.times for part in parts], "<f8"),
        _joined([part.block_sizes for part in parts], "<u4"),
        _joined([part.stored for part in parts], "<u4"),
        _joined([part.roots for part in parts], ">u8"),
        _joined([part.depths for part in parts], "<u2"),
        _joined([part.lora_codes for part in parts], "<u2"),
        _joined([part.ends for part in parts], ">u8"),
        np.array([len(part.kinds) for part in parts], np.int64),
        np.array([part.stored_before for part in parts], np.int64),
        np.array([_has(part) for part in parts], np.uint8),
    )


def _joined(columns: Iterable[bytes], packed: str) -> npt.NDArray[Any]:
    # A copy: an array over a buffer is read-only, which is another type to the compiler.
    kind = np.dtype(packed)
    return np.frombuffer(b"".join(columns), kind).astype(kind.newbyteorder("="))


def _has(part: ResidencyChanges) -> int:
    has = HAS_STORED if part.stored else 0
    if part.roots:
        has |= HAS_ROOTS
    if part.depths:
        has |= HAS_DEPTHS
    if part.lora_codes:
        has |= HAS_ADAPTERS
    if part.ends:
        has |= HAS_ENDS
    return has
