"""Changes of residency waiting for the next checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.residency.row_bytes import concatenated

ChangeRows = npt.NDArray[np.void]

CHANGE: Final = np.dtype(
    [
        ("hash", np.uint64),
        ("time", np.float64),  # seconds since the epoch, event time
        ("stored", np.int64),  # tokens stored in the pool before, all copies counted
        ("root", np.uint64),  # of fills: first block of the chain; 0: not known
        ("block_size", np.uint32),  # tokens
        ("depth", np.uint16),  # of fills: blocks of the chain up to and including this one
        ("adapter", np.uint16),  # of fills: 0, or the position of the LoRA in `Changes.loras`, from 1
        ("kind", np.uint8),  # as in `schemas.residency`
        ("by_content", np.bool_),  # whether `hash` is a content hash
    ]
)
"""One change; `root`, `depth` and `adapter` mean nothing where nothing was filled."""


class Changes(NamedTuple):
    """m changes of one pool in order of occurrence."""

    medium: str
    group_idx: int
    rows: ChangeRows
    """(m,) of CHANGE."""
    stored_known: bool = True
    """Whether the rows say how many tokens were stored before."""
    store_only: bool = False
    loras: Sequence[str] = ()


def joined(changes: Sequence[Changes]) -> list[Changes]:
    """Return the changes of each pool in one piece, pools in the order of their first ones."""
    pools: dict[tuple[str, int], list[Changes]] = {}
    for change in changes:
        pools.setdefault((change.medium, change.group_idx), []).append(change)
    return [parts[0] if len(parts) == 1 else _one(parts) for parts in pools.values()]


def _one(parts: Sequence[Changes]) -> Changes:
    return parts[0]._replace(
        rows=concatenated([part.rows for part in parts]),
        stored_known=all(part.stored_known for part in parts),
        loras=next((part.loras for part in parts if part.loras), ()),
    )
