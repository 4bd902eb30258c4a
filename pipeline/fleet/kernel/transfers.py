"""Fills of sources that receive KV, until it is decided which of them were transferred (docs/figures.md).

Engines announce transferred blocks like computed ones. The blocks of a run came together: if its last one was
stored before by any source, so were the others, as a hash covers all blocks before it, and the run was
transferred. The shard of that block knows; the others wait for its answer. Fills count in the order in which
they came, so that a source's windows only move forward.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import borrowed, compiled, inlined
from pipeline.fleet.causes import (
    COLD,
    EVICTED_HERE,
    GENERATED_HERE,
    PEER_AND_EVICTED,
    PROMOTED,
    REANNOUNCED,
    TRANSFERRED,
    TRANSFERRED_PART,
)
from pipeline.fleet.kernel.columns import Changes, Pieces
from pipeline.fleet.kernel.counts import (
    DONE,
    ENDED_FULL,
    REFILLS_FULL,
    Cells,
    Ended,
    begin_window,
    count_fill,
)
from pipeline.fleet.kernel.keys import key_of
from pipeline.fleet.kernel.refills import USED, Refills, count_refill
from pipeline.fleet.kernel.tables import I64, U64
from pipeline.reading.windows import WINDOW_SECONDS

# What is known of a fill's run.
ASKED: Final = 0
COMPUTED: Final = 1
TRANSFER: Final = 2

FILL: Final = np.dtype(
    [
        ("run", "<u8"),
        # First block of the chain; 0 where not known.
        ("root", "<u8"),
        ("time", "<f8"),
        # Tokens.
        ("size", "<u4"),
        ("cell", "<i4"),
        ("source", "<u2"),
        ("lineage", "<u2"),
        ("depth", "<u2"),
        # Its cause if it was computed, and the buckets that it would count in then, or NO_BUCKET.
        ("cause", "u1"),
        ("regret", "i1"),
        ("needed", "i1"),
        ("trust", "u1"),
        # ASKED, COMPUTED or TRANSFER.
        ("state", "u1"),
    ],
    align=True,
)
ANSWER: Final = np.dtype(
    [
        ("run", "<u8"),
        # Running number: how many answers came up to and including this one.
        ("came", "<i8"),
        # Whether the last block of the run was stored before.
        ("known", "u1"),
    ],
    align=True,
)

FILLS: Final = 0
ANSWERS: Final = 1


class Waiting(NamedTuple):
    """Fills that do not count yet, in the order in which they will, and answers for other shards."""

    fills: npt.NDArray[Any]
    answers: npt.NDArray[Any]
    used: I64
    """How many of each, by FILLS and ANSWERS."""


IS_END: Final = 1
"""Bit that is set in the run of its last block."""


@compiled
def run_of(end: np.uint64, time: float, salt: np.uint64) -> np.uint64:
    """Return a number that identifies a run in all shards, made of its last block and event time and of the
    salt of its session and group; never 0 or odd."""
    bits = np.uint64(np.int64(time * 1e6))
    run: np.uint64 = (key_of(end ^ key_of(bits, salt), salt) | np.uint64(2)) & ~np.uint64(IS_END)
    return run


@inlined
def wait(
    waiting: Waiting,
    changes: Changes,
    at: int,
    pieces: Pieces,
    known: bool,
    chain: Any,
    found: tuple[int, int, int],
) -> None:
    """Add a fill to those that wait, which have room: `found` is its cause and buckets, `known` whether any
    source stored the block before, and `chain` its root, depth and lineage."""
    piece = changes.pieces[at]
    run = changes.runs[at]
    to = waiting.used[FILLS]
    waiting.used[FILLS] = to + 1
    fill = waiting.fills[to]
    fill.run = run & ~np.uint64(IS_END)
    fill.root, fill.depth, fill.lineage = chain
    fill.time, fill.size = changes.times[at], changes.sizes[at]
    fill.cell, fill.source, fill.trust = pieces.cells[piece], pieces.sources[piece], pieces.trusts[piece]
    fill.cause, fill.regret, fill.needed = found
    is_last = run == np.uint64(0) or run & np.uint64(IS_END) != np.uint64(0)
    fill.state = COMPUTED if not known else TRANSFER if is_last else ASKED
    if run & np.uint64(IS_END):
        to = waiting.used[ANSWERS]
        waiting.used[ANSWERS] = to + 1
        waiting.answers[to].run = fill.run
        waiting.answers[to].known = known


@compiled
def decide(fills: npt.NDArray[Any], runs: U64, states: npt.NDArray[np.uint8]) -> None:
    """Apply the states of `runs`, which are sorted, to the fills that wait for them."""
    for at in range(len(fills)):
        if fills[at].state == ASKED:
            found = np.searchsorted(runs, fills[at].run)
            if found < len(runs) and runs[found] == fills[at].run:
                fills[at].state = states[found]


@compiled
def count_decided(
    fills: npt.NDArray[Any],
    start: int,
    cells: Cells,
    refills: Refills,
    ended: Ended,
    version: int,
) -> tuple[int, int]:
    """Count fills from `start` up to the first that waits; return (index of the next, why it stopped)."""
    cells, refills, ended = borrowed(cells), borrowed(refills), borrowed(ended)
    for at in range(start, len(fills)):
        fill = fills[at]
        if fill.state == ASKED:
            return at, DONE
        window = np.int64(np.floor(fill.time / WINDOW_SECONDS))
        if window > cells.windows[fill.cell]:
            if ended.used[0] == len(ended.numbers):
                return at, ENDED_FULL
            begin_window(cells, fill.cell, window, ended)
        if 2 * refills.totals[USED] >= len(refills.rows):
            return at, REFILLS_FULL
        found = np.int64(fill.cause), np.int64(fill.regret), np.int64(fill.needed)
        certain = fill.cause == PROMOTED or fill.cause == GENERATED_HERE or fill.cause == REANNOUNCED
        if fill.state == TRANSFER and not certain:
            found = TRANSFERRED, -1, -1
            if fill.cause == EVICTED_HERE or fill.cause == PEER_AND_EVICTED:
                cells.parts[fill.cell, TRANSFERRED_PART] += fill.size
        count_fill(cells, fill.cell, found, fill.size, fill.trust, version)
        if GENERATED_HERE < found[0] < COLD and fill.root != np.uint64(0):
            count_refill(refills, fill, fill.size)
    return len(fills), DONE
