"""Scan payloads that came together: the fast way to normalise, and only the fast way (see `scanner`)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import msgspec
import numpy as np

from connectors.engines.catalogue import CATALOGUE, Catalogue
from connectors.frames.bundle import Bundle
from connectors.normalise.columns import DONE, END, ROWS, SEQ, START, STATUS, STRETCH_END
from connectors.normalise.scan_tables import scan_tables
from connectors.normalise.scanner.layout import ROOM, Bytes, Ints
from connectors.normalise.scanner.payloads import transcode

_OUTPUT_SPARE = 64 << 10
"""Bytes of output beyond twice the input; what does not fit takes the slow way."""
_DOUBLE = struct.Struct(">d")


class _Head(msgspec.Struct, array_like=True, gc=False):
    """What an encoded batch begins with."""

    seq: int
    ts: float


_decode_head = msgspec.msgpack.Decoder(_Head).decode


@dataclass(frozen=True, slots=True)
class Scanned:
    """What became of payloads: column i is payload i, rows are those of `columns`."""

    encoded: Bytes
    """Encoded `schemas.events.Batch`es, one behind the other."""
    columns: Ints

    def stretch(self, first: int, due: int) -> int:
        """Return the index behind the payloads from `first` on that are done and numbered from `due` on."""
        if self.columns[STATUS, first] != DONE or self.columns[SEQ, first] != due:
            return first
        return int(self.columns[STRETCH_END, first])

    def published_at(self, payload: int) -> float:
        """Return the engine's time of a payload that is done, seconds since the epoch."""
        columns = self.columns
        return _decode_head(self.encoded[columns[START, payload] : columns[END, payload]].data).ts


def scan(
    messages: Bundle,
    received_at: float,
    *,
    max_frame_bytes: int,
    forward_session_ids: bool,
    catalogue: Catalogue = CATALOGUE,
) -> Scanned:
    """Transcode what is well-formed; the rest is marked as given up."""
    tables = scan_tables(catalogue)
    out = np.empty(2 * messages.data.size + ROOM * messages.seqs.size + _OUTPUT_SPARE, np.uint8)
    columns = np.empty((ROWS, messages.seqs.size), np.int64)
    used = transcode(
        messages.data,
        messages.starts,
        messages.ends,
        messages.seqs,
        max_frame_bytes,
        np.frombuffer(b"\xcb" + _DOUBLE.pack(received_at), np.uint8),
        forward_session_ids,
        tables.forms,
        tables.media,
        out,
        columns,
    )
    return Scanned(out[:used], columns)


def warm_up() -> None:
    """Compile the scanner or load its code: seconds or a tenth of one, before streams are read."""
    scan(Bundle.of([(b"", bytes(8), b"")]), 0.0, max_frame_bytes=1, forward_session_ids=False)
