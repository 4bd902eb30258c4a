"""Scan payloads that came together: the fast way to normalise, and only the fast way (see `scanner`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import msgspec
import numpy as np

from connectors.engines.catalogue import CATALOGUE, Catalogue
from connectors.frames.bundle import MAX_SEQUENCE, Bundle
from connectors.normalise.columns import DONE, RANK, ROWS, SKIPPED, STATUS
from connectors.normalise.forwarding import NOTHING_FORWARDED, Forwarding
from connectors.normalise.links import Linker
from connectors.normalise.scan_tables import scan_tables
from connectors.normalise.scanned import Scanned
from connectors.normalise.scanner.blake2b import Words
from connectors.normalise.scanner.layout import ROOM, SALTS, SESSIONS, Bytes, Ints
from connectors.normalise.scanner.payloads import PART_DATA, PART_END, PART_RECEIVED_AT, PARTS, transcode
from connectors.normalise.single import COMPILED, Single
from connectors.normalise.wire import LARGE_PAYLOAD_BYTES, MAX_BATCH_BYTES, MAX_BATCH_HASHES
from schemas.events import Batch, Removed, Stored

NO_STATE: Words = np.empty(0, np.uint64)
"""Given instead of a state: what would be hashed with it is left out."""
_decode = msgspec.msgpack.Decoder(Batch).decode
Numbers = Sequence[int] | Ints

_OUTPUT_SPARE = 64 << 10
"""Bytes of output beyond twice the input; what does not fit takes the slow way."""


def scan(
    messages: Bundle,
    received_at: float,
    *,
    max_frame_bytes: int,
    forwarding: Forwarding = NOTHING_FORWARDED,
    catalogue: Catalogue = CATALOGUE,
) -> Scanned:
    """Transcode what is well-formed; the rest is marked as given up."""
    encoded, columns = scan_joined(
        [messages],
        [received_at],
        max_frame_bytes=max_frame_bytes,
        forwarding=forwarding,
        catalogue=catalogue,
    )
    return Scanned(encoded, columns)


def scan_joined(
    bundles: Sequence[Bundle],
    received_at: Sequence[float],
    *,
    max_frame_bytes: int,
    forwarding: Forwarding = NOTHING_FORWARDED,
    catalogue: Catalogue = CATALOGUE,
) -> tuple[Bytes, Ints]:
    """Do what `scan` does to each bundle, with its time of receipt, in one call of compiled code.

    Returns (encoded, columns): the columns of a bundle after those of the one before.
    """
    ends = list(accumulate([len(bundle) for bundle in bundles], initial=0))
    data_ends = list(accumulate([bundle.size for bundle in bundles], initial=0))
    parts = parts_of(ends[1:], data_ends[:-1], received_at)
    if len(bundles) == 1:
        data, messages = bundles[0].data, bundles[0].table
    else:
        data = np.concatenate([bundle.data for bundle in bundles])
        messages = np.concatenate([bundle.table for bundle in bundles], axis=1)
    return scan_side_by_side(
        data,
        messages,
        parts,
        max_frame_bytes=max_frame_bytes,
        forwarding=forwarding,
        catalogue=catalogue,
    )


def parts_of(ends: Numbers, begins: Numbers, received_at: Sequence[float] | float) -> Ints:
    """Return the table of bundles that `transcode` takes: where each ends, and where its data begin."""
    parts = np.empty((PARTS, len(ends)), np.int64)
    parts[PART_END] = ends
    parts[PART_DATA] = begins
    parts.view(np.float64)[PART_RECEIVED_AT] = received_at
    return parts


def scan_single(
    payload: bytes, seq: int, received_at: float, forwarding: Forwarding, catalogue: Catalogue = CATALOGUE
) -> Single | None:
    """Scan a payload of any length; return None where it is given up."""
    if seq >= MAX_SEQUENCE:
        return None
    encoded, columns = _transcoded(
        np.frombuffer(payload, np.uint8).copy(),  # code is compiled for writable arrays
        np.array([[0], [len(payload)], [seq]], np.int64),
        parts_of([1], [0], received_at),
        most_bytes=len(payload),
        forwarding=forwarding,
        catalogue=catalogue,
    )
    if columns[STATUS, 0] != DONE:
        return None
    batch = _decode(encoded.data)
    if len(payload) > MAX_BATCH_HASHES and _bytes_of_hashes(batch) > MAX_BATCH_BYTES:
        return None
    return Single(batch, int(columns[SKIPPED, 0]), int(columns[RANK, 0]))


def _bytes_of_hashes(batch: Batch) -> int:
    return sum(len(event.hashes) for event in batch.events if isinstance(event, Stored | Removed))


def scan_side_by_side(
    data: Bytes,
    messages: Ints,
    parts: Ints,
    *,
    max_frame_bytes: int,
    forwarding: Forwarding = NOTHING_FORWARDED,
    catalogue: Catalogue = CATALOGUE,
) -> tuple[Bytes, Ints]:
    """Scan bundles that lie side by side, as `transcode` takes them; return (encoded, columns).

    Payloads longer than LARGE_PAYLOAD_BYTES are given up.
    """
    return _transcoded(
        data,
        messages,
        parts,
        most_bytes=min(max_frame_bytes, LARGE_PAYLOAD_BYTES),
        forwarding=forwarding,
        catalogue=catalogue,
    )


def _transcoded(
    data: Bytes, messages: Ints, parts: Ints, *, most_bytes: int, forwarding: Forwarding, catalogue: Catalogue
) -> tuple[Bytes, Ints]:
    tables = scan_tables(catalogue)
    count = messages.shape[1]
    out = np.empty(2 * data.size + ROOM * count + _OUTPUT_SPARE, np.uint8)
    columns = np.empty((ROWS, count), np.int64)
    used = transcode(
        data,
        messages,
        parts,
        most_bytes,
        content_of(forwarding.linker),
        *names_of(forwarding),
        tables.forms,
        tables.media,
        out,
        columns,
    )
    return out[:used], columns


def content_of(linker: Linker | None) -> Words:
    """Return the argument `content` of `transcode` for streams with this linker, or without one."""
    return NO_STATE if linker is None else linker.state


def names_of(forwarding: Forwarding) -> tuple[Words, int]:
    """Return the arguments `names` and `named` of `transcode` for streams that forward this."""
    names = forwarding.sessions or forwarding.salts
    named = (SESSIONS if forwarding.sessions else 0) | (SALTS if forwarding.salts else 0)
    return NO_STATE if names is None else names.state, named


def warm_up() -> None:
    """Compile the scanner or load its code: seconds or a tenth of one, before streams are read."""
    linked = Forwarding(linker=Linker(bytes(1)))
    scan(Bundle.of([(b"", bytes(8), b"")]), 0.0, max_frame_bytes=1, forwarding=linked)
    COMPILED.scan_single = scan_single
