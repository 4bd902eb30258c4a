"""Which blocks came together: runs of a chain that an engine stored at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import compiled, inlined
from pipeline.residency.changes import ChangeRows
from schemas.residency import FILLED

_DEEPEST = 2**16 - 1
"""Depths are not counted beyond."""


@inlined
def _goes_on(before: Any, row: Any) -> bool:
    """Return whether a change fills the next block of the run that the one before belongs to."""
    together: bool = (
        row.kind == FILLED
        and before.kind == FILLED
        and row.time == before.time
        and row.root == before.root
        and row.adapter == before.adapter
    )
    next_one: bool = row.root == 0 or row.depth == before.depth + 1 or row.depth == _DEEPEST
    return together and next_one


@compiled
def ends_of_runs(rows: ChangeRows) -> npt.NDArray[np.uint64]:
    """Return for each of n changes the hash of the last block of its run, 0 where it came alone.

    A run is what one event stored, as far as the blocks were not resident before: of one time and chain, each
    block after the one before. Where the chain is not known, it is what is side by side.
    """
    ends = np.zeros(len(rows), np.uint64)
    for at in range(len(rows) - 1, 0, -1):
        if _goes_on(rows[at - 1], rows[at]):
            if ends[at] == 0:
                ends[at] = rows[at].hash
            ends[at - 1] = ends[at]
    return ends
