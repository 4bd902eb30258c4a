"""The compiled loop that distributes the changes of a pool over the shards."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import compiled, inlined
from pipeline.residency.changes import ChangeRows
from pipeline.residency.sharding.together import ends_of_runs
from schemas.residency import FILL_KINDS

PIECE: Final = np.dtype(
    [
        ("shard", np.int64),
        ("start", np.int64),  # of its changes in the columns
        ("first_fill", np.int64),  # of its fills in their columns
        ("stored_before", np.int64),  # tokens, before its first change
    ]
)
"""Changes of one shard that fit into one part of a record; the next piece begins where it ends."""

MOST_STORED: Final = 2**32 - 1
"""Tokens that the column `stored` of a piece can hold."""


class Columns(NamedTuple):
    """n changes, those of a shard together and in order of occurrence, shard after shard."""

    hashes: npt.NDArray[np.uint64]
    kinds: npt.NDArray[np.uint8]
    times: npt.NDArray[np.float64]
    block_sizes: npt.NDArray[np.uint32]
    stored: npt.NDArray[np.uint32]
    """Tokens stored before the change, minus those before the first one of its piece."""
    roots: npt.NDArray[np.uint64]
    """Of fills only, like the next three: only the first `fills` items are set."""
    depths: npt.NDArray[np.uint16]
    adapters: npt.NDArray[np.uint16]
    ends: npt.NDArray[np.uint64]
    """Empty unless asked for."""


class Distributed(NamedTuple):
    """Changes by shard."""

    columns: Columns
    pieces: npt.NDArray[np.void]
    """(k,) of PIECE, by shard."""
    fills: int
    """How many of the changes are fills."""
    rooted: bool
    """Whether the root of any fill is known."""


def distributed(rows: ChangeRows, shards: int, most: int, *, with_ends: bool = False) -> Distributed:
    """Return n changes by shard; with `with_ends`, also the last block of each fill's run.

    A piece has at most `most` changes. It ends early where more tokens were stored since its first one than
    its column can hold, which takes block sizes that no engine has.
    """
    count = len(rows)
    columns = Columns(
        np.empty(count, np.uint64),
        np.empty(count, np.uint8),
        np.empty(count, np.float64),
        np.empty(count, np.uint32),
        np.empty(count, np.uint32),
        np.empty(count, np.uint64),
        np.empty(count, np.uint16),
        np.empty(count, np.uint16),
        np.empty(count if with_ends else 0, np.uint64),
    )
    none_ends_early = stored_within(rows) <= MOST_STORED
    pieces = np.empty(min(count, shards + count // most) if none_ends_early else count, PIECE)
    ends = ends_of_runs(rows) if with_ends else columns.ends
    found, fills, rooted = distribute(rows, ends, shards, most, columns, pieces)
    return Distributed(columns, pieces[:found], fills, rooted)


@compiled
def stored_within(rows: ChangeRows) -> int:
    """Return the difference between the most and the fewest tokens stored before a change."""
    least = most = rows[0].stored if len(rows) else 0
    for at in range(len(rows)):
        least, most = min(least, rows[at].stored), max(most, rows[at].stored)
    return most - least


@inlined
def _shard_of(block: np.uint64, shards: int) -> int:
    """Return the shard of a hash: its high bits, scaled to the number of shards."""
    shard: int = np.int64(((block >> np.uint64(32)) * np.uint64(shards)) >> np.uint64(32))
    return shard


@inlined
def _is_next(taken: int, most: int, stored: int) -> bool:
    """Return whether a change begins a piece; the present one has `taken`, `stored` tokens came since."""
    return taken == 0 or taken == most or stored > MOST_STORED


@compiled
def distribute(
    rows: ChangeRows,
    ends: npt.NDArray[np.uint64],
    shards: int,
    most: int,
    columns: Columns,
    pieces: npt.NDArray[np.void],
) -> tuple[int, int, bool]:
    """Fill `columns` and `pieces`, which have room; return how many pieces and how many fills there are,
    and whether any fill has a root. `ends` are those of all rows, or none."""
    changes_of, fills_of, pieces_of = (
        np.zeros(shards, np.int64),
        np.zeros(shards, np.int64),
        np.zeros(shards, np.int64),
    )
    taken, before = np.zeros(shards, np.int64), np.zeros(shards, np.int64)
    for at in range(len(rows)):
        row = rows[at]
        shard = _shard_of(row.hash, shards)
        changes_of[shard] += 1
        fills_of[shard] += row.kind in FILL_KINDS
        if _is_next(taken[shard], most, row.stored - before[shard]):
            pieces_of[shard] += 1
            taken[shard], before[shard] = 0, row.stored
        taken[shard] += 1
    next_piece = np.empty(shards, np.int64)
    next_change, next_fill = np.empty(shards, np.int64), np.empty(shards, np.int64)
    changes = fills = found = 0
    for shard in range(shards):
        next_piece[shard], next_change[shard], next_fill[shard] = found, changes, fills
        changes += changes_of[shard]
        fills += fills_of[shard]
        found += pieces_of[shard]
    taken[:] = 0
    rooted = False
    for at in range(len(rows)):
        row = rows[at]
        shard = _shard_of(row.hash, shards)
        to, fill = next_change[shard], next_fill[shard]
        if _is_next(taken[shard], most, row.stored - before[shard]):
            piece = pieces[next_piece[shard]]
            piece.shard, piece.start, piece.first_fill = shard, to, fill
            piece.stored_before = row.stored
            next_piece[shard] += 1
            taken[shard], before[shard] = 0, row.stored
        columns.hashes[to] = row.hash
        columns.kinds[to] = row.kind
        columns.times[to] = row.time
        columns.block_sizes[to] = row.block_size
        columns.stored[to] = row.stored - before[shard]
        if row.kind in FILL_KINDS:
            columns.roots[fill] = row.root
            rooted |= row.root != 0
            columns.depths[fill] = row.depth
            columns.adapters[fill] = row.adapter
            if len(ends):
                columns.ends[fill] = ends[at]
            next_fill[shard] = fill + 1
        next_change[shard] = to + 1
        taken[shard] += 1
    return found, fills, rooted


@compiled
def renumbered(
    adapters: npt.NDArray[np.uint16], most: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint16]]:
    """Return which k of `most` adapters n fills have, in order, and for each fill its number in them, or 0.

    Both are empty where no fill has one. Raises IndexError for an adapter beyond `most`.
    """
    numbers, named = np.zeros(most + 1, np.uint16), np.empty(most, np.int64)
    for at in range(len(adapters)):
        if adapters[at] > most:
            raise IndexError("an adapter without a name")
        numbers[adapters[at]] = 1
    numbers[0] = found = 0
    for adapter in range(1, most + 1):
        if numbers[adapter]:
            named[found] = adapter
            found += 1
            numbers[adapter] = found
    codes = np.empty(len(adapters) if found else 0, np.uint16)
    for at in range(len(codes)):
        codes[at] = numbers[adapters[at]]
    return named[:found], codes
