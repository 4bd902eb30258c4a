"""What the compiled loop reads, as columns: changes of residency, and what those of one piece share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.fleet.kernel.tables import F64, I64, U8, U16, U32, U64


class Changes(NamedTuple):
    """n changes in the order in which they count."""

    keys: U64
    """Of blocks, as `keys.keys_of` makes them."""
    kinds: U8
    times: F64
    sizes: U32
    stored: I64
    """Tokens stored in the pool before the change; -1 unknown."""
    pieces: npt.NDArray[np.int32]
    """Which piece each change belongs to."""
    roots: U64
    """First block of the filled block's chain; 0 where not known."""
    depths: U16
    """Blocks of the chain up to and including it."""
    lineages: U16
    """Number of the chain's hash domain, group and LoRA."""
    runs: U64
    """Of fills of sources that receive: the run that the block came with (`transfers.run_of`); 0: alone."""


class Pieces(NamedTuple):
    """What the changes of one source and pool in a record have in common."""

    sources: U16
    lives: U16
    bits: U8
    """Bit number of the medium: STORE_ONLY_BIT and above where removals are not announced."""
    trusts: U8
    medium_keys: U64
    """Added to a block's key for its entry of this medium."""
    gauges: npt.NDArray[np.int32]
    cells: npt.NDArray[np.int32]
    unsure_until: F64
    """What the source had lost before this event time may not be known."""
    alone: U8
    """1: whether the source's hashes compare with those of others is in doubt."""
    receives: U8
    """1: the source may announce what others computed."""
