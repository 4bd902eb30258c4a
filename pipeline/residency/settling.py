"""Applies sorted operations to reference counts, all hashes at once.

A count never falls below zero: removals of unknown blocks are normal after joining late. With c the
count before the first operation of a hash and d = ±1 per operation, the sums s(i) = c + d(1) + ... + d(i)
give the clamped count s(i) - min(0, s(1), ..., s(i)) (the reflection of a random walk at zero).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.residency.operations import REMOVAL, Bools, Entries, Ints, Keys, Operations
from schemas.residency import EVICTED, FILLED


class Tally(NamedTuple):
    """What the operations did, per size code where it is an array."""

    stored: Ints
    filled: Ints
    removed: Ints
    evicted: Ints
    unknown_removed: int
    lifetimes: npt.NDArray[np.float64]
    """Seconds from first copy to last removal of each evicted block."""
    places: Ints
    """Place in the stream of each change of residency, with its key, kind and size code; any order."""
    keys: Keys
    kinds: npt.NDArray[np.uint8]
    codes: npt.NDArray[np.int32]
    times: npt.NDArray[np.float64]

    def order(self) -> Ints:
        """Return the indices that put the changes into stream order."""
        if not len(self.places):
            return self.places
        change_at = np.full(int(self.places.max()) + 1, -1, np.intp)
        change_at[self.places] = np.arange(len(self.places))
        return change_at[change_at >= 0]


class Course(NamedTuple):
    """How the count of each operation's hash went."""

    before: npt.NDArray[np.int64]
    after: npt.NDArray[np.int64]
    fill: Bools
    birth: npt.NDArray[np.float64]
    """Event time of the first copy that the operation found, or brought."""
    code: npt.NDArray[np.int32]
    """Size code of that first copy."""


def course_of(operations: Operations, entries: Entries) -> Course:
    """Return how the count of each operation's hash goes when every operation counts."""
    segment, starts = operations.segment, operations.starts
    step = np.where(operations.codes == REMOVAL, -1, 1)
    total = np.cumsum(step)
    walk = total + (entries.copies - (total[starts] - step[starts]))[segment]
    # Each segment's walk is moved below all earlier ones, so that one running minimum serves them all.
    span = np.int64(np.abs(walk).max() + 1) * 2
    lowest = np.minimum.accumulate(walk - segment * span) + segment * span
    after = walk - np.minimum(lowest, 0)
    before = np.empty_like(after)
    before[1:] = after[:-1]
    before[starts] = entries.copies
    fill = (step > 0) & (before == 0)
    index = np.arange(len(step))
    last_fill = np.maximum.accumulate(np.where(fill, index, -1))
    own = last_fill >= starts[segment]
    birth = np.where(own, operations.times[last_fill], entries.births[segment])
    code = np.where(own, operations.codes[last_fill], entries.codes[segment])
    return Course(before, after, fill, birth, code)


def settle(
    operations: Operations, entries: Entries, course: Course, sizes: int, alone: Bools
) -> tuple[Tally, Bools]:
    """Apply the operations to `entries` (changed in place) and return what they did.

    Segments in `alone` are left alone, and so are those where copies of several block sizes meet, which
    only one by one can be told apart (`pipeline.residency.one_by_one`); both are returned.
    """
    store = operations.codes != REMOVAL
    if sizes > 1:
        alone = alone.copy()
        other_size = store & ~course.fill & (operations.codes != course.code)
        alone[operations.segment[other_size]] = True
    if alone.any():
        applied = ~alone[operations.segment]
        store_applied, remove = store & applied, ~store & applied
        fill = course.fill & applied
    else:
        store_applied, remove, fill = store, ~store, course.fill
    evict = remove & (course.before == 1)
    leave = remove & (course.before > 0)

    ends = np.append(operations.starts[1:], len(operations.place)) - 1
    chosen = ~alone
    entries.copies[chosen] = course.after[ends[chosen]]
    entries.births[chosen] = course.birth[ends[chosen]]
    entries.codes[chosen] = course.code[ends[chosen]]

    changed = np.flatnonzero(fill | evict)
    return (
        Tally(
            np.bincount(operations.codes[store_applied], minlength=sizes),
            np.bincount(operations.codes[fill], minlength=sizes),
            np.bincount(course.code[leave], minlength=sizes),
            np.bincount(course.code[evict], minlength=sizes),
            int(np.count_nonzero(remove) - np.count_nonzero(leave)),
            operations.times[evict] - course.birth[evict],
            operations.place[changed],
            operations.keys[operations.segment[changed]],
            np.where(fill[changed], FILLED, EVICTED).astype(np.uint8),
            course.code[changed],
            operations.times[changed],
        ),
        alone,
    )


def merged(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of several tallies."""
    parts = list(tallies)
    return Tally(
        np.sum([part.stored for part in parts], axis=0),
        np.sum([part.filled for part in parts], axis=0),
        np.sum([part.removed for part in parts], axis=0),
        np.sum([part.evicted for part in parts], axis=0),
        sum(part.unknown_removed for part in parts),
        np.concatenate([part.lifetimes for part in parts]),
        np.concatenate([part.places for part in parts]),
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.kinds for part in parts]),
        np.concatenate([part.codes for part in parts]),
        np.concatenate([part.times for part in parts]),
    )
