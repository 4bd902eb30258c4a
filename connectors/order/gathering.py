"""Compiled code that puts scanned batches into their sources' slots where they are simply the next ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from connectors.normalise.columns import (
    DONE,
    END,
    EVENTS,
    FINGERPRINT,
    PAYLOAD_BYTES,
    ROWS,
    SEQ,
    START,
    STATUS,
    STRETCH_END,
)
from connectors.normalise.columns import RANK as ANNOUNCED_RANK
from connectors.normalise.columns import SKIPPED as SKIPPED_EVENTS
from connectors.normalise.scanner.layout import Bytes, Ints
from connectors.order.gathered import (
    COUNT,
    DUE,
    ENGINE_EVENTS,
    NOTHING,
    PUBLISHED,
    RANK,
    ROOM,
    SINCE,
    SIZE,
    SKIPPED,
    SLOT_BATCHES,
    UNTIL,
    UNTIL_LOOK,
    USED,
    Gathered,
)
from connectors.process.compiled import compiled, inner

ODD, IN_ORDER, GATHERED = range(3)
"""What became of a bundle: it is not simply the next; it is, but its slot has no room; it is in its slot."""


@inner
def _of_rank(columns: Ints, first: int, end: int, rank: int) -> bool:
    same = True
    for i in range(first, end):
        same = same and columns[ANNOUNCED_RANK, i] == rank
    return same


@compiled
def gather(
    encoded: Bytes,
    columns: Ints,
    published_at: NDArray[np.float64],
    ends: Ints,
    slots: Ints,
    received_at: NDArray[np.float64],
    slot_bytes: NDArray[np.uint8],
    slot_fingerprints: Ints,
    heads: Ints,
    times: NDArray[np.float64],
    outcomes: Ints,
) -> None:
    """Put each scanned bundle into the slot of its source if it is the next; say in `outcomes` what was done.

    `encoded` and `columns` are those of `scan_side_by_side`, and `published_at` is one row of the columns as
    floats. Bundle k ends before payload `ends[k]`, and its source has slot `slots[k]`, or NOTHING. The other
    arguments are the tables of `Gathered`.
    """
    first = 0
    for part in range(len(slots)):
        end, slot = ends[part], slots[part]
        payloads = end - first
        outcomes[part] = ODD
        if (
            slot != NOTHING
            and columns[STATUS, first] == DONE
            and columns[SEQ, first] == heads[slot, DUE]
            and columns[STRETCH_END, first] == payloads
            and heads[slot, UNTIL_LOOK] > payloads
            and _of_rank(columns, first, end, heads[slot, RANK])
        ):
            count, used = heads[slot, COUNT], heads[slot, USED]
            start = columns[START, first]
            size = columns[END, end - 1] - start
            if count + payloads > SLOT_BATCHES or used + size >= heads[slot, ROOM]:
                outcomes[part] = IN_ORDER
            else:
                for i in range(size):
                    slot_bytes[slot, used + i] = encoded[start + i]
                if count == 0:
                    times[slot, SINCE] = received_at[part]
                for i in range(first, end):
                    slot_fingerprints[slot, count + i - first] = columns[FINGERPRINT, i]
                    heads[slot, ENGINE_EVENTS] += columns[EVENTS, i]
                    heads[slot, SKIPPED] += columns[SKIPPED_EVENTS, i]
                    heads[slot, SIZE] += columns[PAYLOAD_BYTES, i]
                heads[slot, DUE] += payloads
                heads[slot, UNTIL_LOOK] -= payloads
                heads[slot, COUNT] = count + payloads
                heads[slot, USED] = used + size
                times[slot, UNTIL] = received_at[part]
                times[slot, PUBLISHED] = published_at[end - 1]
                outcomes[part] = GATHERED
        first = end


def warm_up() -> None:
    """Compile the loop, or load its code."""
    nothing = np.empty(0, np.int64)
    gathered = Gathered()
    gather(
        np.empty(0, np.uint8),
        np.empty((ROWS, 0), np.int64),
        np.empty(0, np.float64),
        nothing,
        nothing,
        np.empty(0, np.float64),
        gathered.encoded,
        gathered.fingerprints,
        gathered.heads,
        gathered.times,
        nothing,
    )
