"""What the compiled loop reads, as columns: changes of residency, and what the changes of a piece share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.fleet.kernel.tables import F64, I64, U8, U16, U32, U64


class Changes(NamedTuple):
    """n changes in the order in which they count."""

    keys: U64
    """Keys of blocks, as `keys.key_of` makes them."""
    kinds: U8
    times: F64
    sizes: U32
    stored: I64
    """Tokens stored in the pool before the change; -1: unknown."""
    pieces: npt.NDArray[np.int32]
    """Which piece each change belongs to."""
    roots: U64
    """First block of the filled block's chain; 0 where not known."""
    depths: U16
    """Blocks of the chain up to and including the filled one."""
    lineages: U16
    """Number of the chain's hash domain, group and LoRA."""
    runs: U64
    """For fills of sources that receive KV: the run that the block came in (`transfers.run_of`); 0: alone."""


class Pieces(NamedTuple):
    """What the changes of one source and pool in a record have in common."""

    sources: U16
    lives: U16
    """Low bits of the number of the source's engine session."""
    bits: U8
    """Bit number of the medium: STORE_ONLY_BIT and above where removals are not announced."""
    trusts: U8
    medium_keys: U64
    """Added to a block's key for its entry of this medium."""
    gauges: npt.NDArray[np.int32]
    cells: npt.NDArray[np.int32]
    unsure_until: F64
    """Until this event time, earlier losses of the source may be unknown."""
    alone: U8
    """1: it is in doubt whether the source's hashes compare with those of others."""
    receives: U8
    """1: the source may announce what others computed."""
