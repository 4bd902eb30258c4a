"""Changes of residency waiting for the next checkpoint."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.kafka.portions import in_portions
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


JOINED_BYTES: Final = 1 << 20
"""Rows are joined until they have this size. A longer array would need fresh memory each time, and getting
that from the kernel takes three times as long as packing the rows."""


def joined(changes: list[Changes]) -> Iterator[Changes]:
    """Yield the changes of each pool in few pieces, pools in the order of their first ones.

    Empties the list, so that changes stay in memory no longer than they are needed.
    """
    pools: dict[tuple[str, int], list[Changes]] = {}
    for change in changes:
        pools.setdefault((change.medium, change.group_idx), []).append(change)
    changes.clear()
    portions = deque(
        chain.from_iterable(
            in_portions(parts, lambda part: part.rows.nbytes, most_bytes=JOINED_BYTES)
            for parts in pools.values()
        )
    )
    pools.clear()
    while portions:
        yield _one(portions.popleft())


def _one(parts: Sequence[Changes]) -> Changes:
    if len(parts) == 1:
        return parts[0]
    return parts[0]._replace(
        rows=concatenated([part.rows for part in parts]),
        stored_known=all(part.stored_known for part in parts),
        loras=next((part.loras for part in parts if part.loras), ()),
    )
