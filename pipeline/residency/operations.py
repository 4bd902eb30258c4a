"""Store and remove operations on one pool, sorted so that those on the same hash stand together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.residency.table import keys_of
from schemas.hashes import HASH_BYTES

REMOVAL = -1

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.intp]
Keys = npt.NDArray[np.uint64]


Pending = tuple[bytes, float, int]
"""One event: packed hashes, event time, and the code of their block size if they came or REMOVAL."""


class Operations(NamedTuple):
    """n operations sorted by key, in stream order within a key; k segments of equal keys."""

    place: Ints
    """Place of each operation in the stream."""
    event: Ints
    """Index of the event each operation belongs to."""
    codes: npt.NDArray[np.int32]
    times: npt.NDArray[np.float64]
    segment: Ints
    starts: Ints
    """First operation of each segment."""
    keys: Keys
    """Key of each segment, ascending."""


class Entries(NamedTuple):
    """What the table holds of k keys; zero copies where it holds nothing."""

    keys: Keys
    slots: Ints
    copies: npt.NDArray[np.int32]
    births: npt.NDArray[np.float64]
    codes: npt.NDArray[np.int32]


def sorted_operations(pending: Sequence[Pending]) -> Operations | None:
    """Return the operations of the events, None when they name no hash at all."""
    packed, times, codes = zip(*pending, strict=True)
    hashes = np.frombuffer(b"".join(packed), ">u8").astype(np.uint64)
    if not len(hashes):
        return None
    lengths = np.fromiter(map(len, packed), np.intp, len(packed)) // HASH_BYTES
    keys = keys_of(hashes)
    place = stable_order(keys)
    event = np.repeat(np.arange(len(packed)), lengths)[place]
    keys = keys[place]
    first = np.empty(len(keys), np.bool_)
    first[0] = True
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    return Operations(
        place,
        event,
        np.array(codes, np.int32)[event],
        np.array(times, np.float64)[event],
        np.cumsum(first) - 1,
        starts,
        keys[starts],
    )


def stable_order(keys: Keys) -> Ints:
    """Return the indices that sort keys, equal ones in their order.

    Sorting plain integers is many times faster than sorting indices by them, so the index takes the place
    of a key's low bits. Only if keys that differ nowhere else meet does that go wrong, which shows.
    """
    bits = np.uint64(max(1, len(keys) - 1).bit_length())
    index = np.arange(len(keys), dtype=np.uint64)
    order = np.sort(((keys >> bits) << bits) | index) & ((np.uint64(1) << bits) - np.uint64(1))
    place: Ints = order.astype(np.intp)
    ordered = keys[place]
    if (ordered[1:] < ordered[:-1]).any():
        return np.argsort(keys, kind="stable")
    return place
