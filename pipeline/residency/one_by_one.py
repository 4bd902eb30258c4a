"""Applies operations in stream order, one by one: for the few that cannot be told apart all at once."""

from __future__ import annotations

import numpy as np

from pipeline.residency.operations import REMOVAL, Bools, Entries, Operations
from pipeline.residency.settling import Tally
from schemas.residency import EVICTED, FILLED

OtherSizes = dict[int, list[int]]
"""Key to the size codes of copies beyond the first that differ from the entry's, oldest first."""


def settle_one_by_one(
    operations: Operations,
    entries: Entries,
    chosen: Bools,
    sizes: int,
    other_sizes: OtherSizes,
    repeats: set[int],
) -> tuple[Tally, int]:
    """Apply the operations of the chosen segments to `entries` and `other_sizes` (changed in place).

    Stores of the events `repeats` do not count when all their hashes are resident by then. Returns what
    was done, and how many blocks were only announced again.
    """
    mine = np.flatnonzero(chosen[operations.segment])
    mine = mine[np.argsort(operations.place[mine])]
    copies, births = entries.copies.tolist(), entries.births.tolist()
    codes, keys = entries.codes.tolist(), entries.keys.tolist()
    stored, filled = np.zeros(sizes, np.intp), np.zeros(sizes, np.intp)
    removed, evicted = np.zeros(sizes, np.intp), np.zeros(sizes, np.intp)
    unknown = reannounced = 0
    lifetimes: list[float] = []
    changes: list[tuple[int, int, int, int, float]] = []
    only_repeats: dict[int, bool] = {}
    for place, event, segment, code, at in zip(
        operations.place[mine].tolist(),
        operations.event[mine].tolist(),
        operations.segment[mine].tolist(),
        operations.codes[mine].tolist(),
        operations.times[mine].tolist(),
        strict=True,
    ):
        if event in repeats:
            if event not in only_repeats:
                segments = operations.segment[operations.event == event].tolist()
                only_repeats[event] = all(copies[other] for other in segments)
            if only_repeats[event]:
                reannounced += 1
                continue
        key = keys[segment]
        if code != REMOVAL:
            stored[code] += 1
            copies[segment] += 1
            if copies[segment] == 1:
                filled[code] += 1
                births[segment], codes[segment] = at, code
                changes.append((place, key, FILLED, code, at))
            elif code != codes[segment]:
                other_sizes.setdefault(key, []).append(code)
        elif copies[segment] == 0:
            unknown += 1
        else:
            copies[segment] -= 1
            removed[_leaving(other_sizes, key, codes[segment])] += 1
            if copies[segment] == 0:
                evicted[codes[segment]] += 1
                lifetimes.append(at - births[segment])
                changes.append((place, key, EVICTED, codes[segment], at))
    entries.copies[:], entries.births[:], entries.codes[:] = copies, births, codes
    places, change_keys, kinds, change_codes, times = zip(*changes, strict=True) if changes else ((),) * 5
    tally = Tally(
        stored,
        filled,
        removed,
        evicted,
        unknown,
        np.array(lifetimes, np.float64),
        np.array(places, np.intp),
        np.array(change_keys, np.uint64),
        np.array(kinds, np.uint8),
        np.array(change_codes, np.int32),
        np.array(times, np.float64),
    )
    return tally, reannounced


def _leaving(other_sizes: OtherSizes, key: int, code: int) -> int:
    """Return the size code of the copy that leaves: the latest of another size, while there is one."""
    others = other_sizes.get(key)
    if others is None:
        return code
    leaving = others.pop()
    if not others:
        del other_sizes[key]
    return leaving
