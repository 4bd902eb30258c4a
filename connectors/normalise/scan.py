"""Scan payloads that came together: the fast way to normalise, and only the fast way (see `scanner`)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from connectors.engines.catalogue import CATALOGUE, Catalogue
from connectors.frames.bundle import Bundle
from connectors.normalise.columns import DONE, PUBLISHED_AT, ROWS, SEQ, STATUS, STRETCH_END
from connectors.normalise.scan_tables import scan_tables
from connectors.normalise.scanner.layout import ROOM, Bytes, Ints
from connectors.normalise.scanner.payloads import PART_DATA, PART_END, PART_RECEIVED_AT, PARTS, transcode

_OUTPUT_SPARE = 64 << 10
"""Bytes of output beyond twice the input; what does not fit takes the slow way."""
_FLOAT = struct.Struct("=d")
_BITS = struct.Struct("=q")


class Scanned:
    """What became of the payloads of one bundle: column i is payload i, rows are those of `columns`."""

    __slots__ = ("columns", "encoded", "rows")

    def __init__(self, encoded: Bytes, columns: Ints) -> None:
        """`encoded` are `schemas.events.Batch`es, one behind the other, perhaps those of others as well."""
        self.encoded = encoded
        self.columns = columns
        self.rows: list[list[int]] = columns.tolist()
        """The same numbers: where there are few, Python is faster with its own."""

    def stretch(self, first: int, due: int) -> int:
        """Return the index behind the payloads from `first` on that are done and numbered from `due` on."""
        rows = self.rows
        if rows[STATUS][first] != DONE or rows[SEQ][first] != due:
            return first
        return rows[STRETCH_END][first]

    def published_at(self, payload: int) -> float:
        """Return the engine's time of a payload that is done, seconds since the epoch."""
        at: float = _FLOAT.unpack(_BITS.pack(self.rows[PUBLISHED_AT][payload]))[0]
        return at


def scan(
    messages: Bundle,
    received_at: float,
    *,
    max_frame_bytes: int,
    forward_session_ids: bool,
    catalogue: Catalogue = CATALOGUE,
) -> Scanned:
    """Transcode what is well-formed; the rest is marked as given up."""
    return scan_together(
        [messages],
        [received_at],
        max_frame_bytes=max_frame_bytes,
        forward_session_ids=forward_session_ids,
        catalogue=catalogue,
    )[0]


def scan_together(
    bundles: Sequence[Bundle],
    received_at: Sequence[float],
    *,
    max_frame_bytes: int,
    forward_session_ids: bool,
    catalogue: Catalogue = CATALOGUE,
) -> list[Scanned]:
    """Do what `scan` does to each bundle, with its time of receipt, in one call of compiled code."""
    tables = scan_tables(catalogue)
    ends = list(accumulate([len(bundle) for bundle in bundles], initial=0))
    data_ends = list(accumulate([bundle.size for bundle in bundles], initial=0))
    parts = np.empty((PARTS, len(bundles)), np.int64)
    parts[PART_END] = ends[1:]
    parts[PART_DATA] = data_ends[:-1]
    parts[PART_RECEIVED_AT] = np.array(received_at, np.float64).view(np.int64)
    if len(bundles) == 1:
        data, messages = bundles[0].data, bundles[0].table
    else:
        data = np.concatenate([bundle.data for bundle in bundles])
        messages = np.concatenate([bundle.table for bundle in bundles], axis=1)
    out = np.empty(2 * data.size + ROOM * ends[-1] + _OUTPUT_SPARE, np.uint8)
    columns = np.empty((ROWS, ends[-1]), np.int64)
    used = transcode(
        data,
        messages,
        parts,
        max_frame_bytes,
        forward_session_ids,
        tables.forms,
        tables.media,
        out,
        columns,
    )
    encoded = out[:used]
    return [Scanned(encoded, columns[:, first:end]) for first, end in pairwise(ends)]


def warm_up() -> None:
    """Compile the scanner or load its code: seconds or a tenth of one, before streams are read."""
    scan(Bundle.of([(b"", bytes(8), b"")]), 0.0, max_frame_bytes=1, forward_session_ids=False)
