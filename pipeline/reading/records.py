"""Reads records that came together: those that are plain, wholly or for the most part, by compiled code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, pairwise
from operator import attrgetter
from typing import NamedTuple

import msgspec
import numpy as np

from connectors.kafka.encoding import UNDECODABLE
from pipeline.reading.joining import joined
from pipeline.reading.partly_plain import PartlyPlain, Place, in_parts
from pipeline.reading.plain_runs import EncodedRun, PlainRun, scanned
from schemas.settings import Worker


class Reading(NamedTuple):
    """What was read of records that came together; a place is a record's index among them."""

    runs: list[PlainRun]
    """In no particular order, except that those of one source are in theirs."""
    partly: list[tuple[int, PartlyPlain]]
    """Places, in order, and the records that are plain for the most part."""
    others: list[int]
    """Places of the records that must be decoded, in order."""
    unknown: list[int]
    """Those of them whose source is not even known."""


def read(
    values: Sequence[bytes | None],
    settings: Worker,
    *,
    offsets: Sequence[int],
    written: Sequence[float] | None = None,
) -> Reading:
    """Read the values of records that lie in the log at `offsets`, None for those that must not be read.

    `written`: the log's time of each, in seconds since the epoch, 0 or less where it has none.
    Runs of a source that continue each other become one.
    """
    records = [*map(_encoded, values)]
    order = _by_source(records)
    encoded: list[EncodedRun] = [records[at] for at in order]  # type: ignore[misc] # None has no source
    places = np.array(order, np.int64)
    times = np.zeros(len(values)) if written is None else np.array(written, np.float64)
    batches = [record.batches for record in encoded]
    rows, chunk = scanned(batches, [len(memoryview(one)) for one in batches], times[places], settings)
    goes_on = np.zeros(len(order), np.bool_)
    goes_on[1:] = [this == before and not this[-1] for before, this in pairwise(map(_said, encoded))]
    whole, spans = joined(rows, goes_on)
    of_runs = np.array(offsets, np.int64)[places]
    runs = [
        PlainRun(encoded[begin:end], of_runs[begin:end], chunk, rows[begin:end], *row)
        for row, (begin, end) in zip(whole.tolist(), spans.tolist(), strict=True)
    ]
    not_plain = np.ones(len(values), np.bool_)
    not_plain[places[rows["batches"] > 0]] = False
    others = np.flatnonzero(not_plain).tolist()
    candidates = [
        Place(at, offsets[at], record, float(times[at]))
        for at in others
        if (record := records[at]) is not None
    ]
    partly = in_parts(candidates, settings)
    unknown = [at for at, record in enumerate(records) if record is None]
    return Reading(runs, partly, sorted({*others} - {at for at, _ in partly}), unknown)


def _by_source(records: Sequence[EncodedRun | None]) -> list[int]:
    """Return the places of the records, grouped by source, so that the events of a source lie together."""
    places: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for at, record in enumerate(records):
        if record is not None:
            places[record.replica, record.dp_rank].append(at)
    return [*chain.from_iterable(places.values())]


def _encoded(value: bytes | None) -> EncodedRun | None:
    try:
        return _decode(value or b"")
    except UNDECODABLE:
        return None


_decode = msgspec.msgpack.Decoder(EncodedRun).decode
_said = attrgetter(
    "replica",
    "dp_rank",
    "incarnation",
    "engine",
    "wire_era",
    "may_reannounce",
    "clears_all",
    "one_copy",
    "role",
    "remarks",
    "duplicates",
)
"""What a record states about its source apart from batches, as far as agents use it; duplicates last."""
