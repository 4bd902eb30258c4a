"""Scan payloads that came together: the fast way to normalise, and only the fast way (see `scanner`)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import msgspec
import numpy as np

from connectors.bundle import Bundle
from connectors.columns import DONE, END, ROWS, SEQ, START, STATUS, STRETCH_END
from connectors.media import canonical_medium
from connectors.scanner.layout import ROOM, Bytes, Ints
from connectors.scanner.payloads import transcode
from connectors.scanner.places import (
    MAX_MEDIUM_BYTES,
    MEDIUM_ENCODED,
    MEDIUM_FIELDS,
    MEDIUM_HEAD,
    MEDIUM_PLACE,
    MEDIUM_RAW,
    MEDIUM_ROW,
)

_SPELLINGS = (
    "",
    "GPU",
    "CPU",
    "cpu",
    "CPU_PINNED",
    "CPU_TIER1",
    "DISK",
    "disk",
    "STORAGE",
    "storage",
    "EXTERNAL",
    "external",
    "FS",
    "fs",
    "OBJ",
    "obj",
)
"""What engines call their media; others take the slow way. The first stands for none."""
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

    def published_at(self, place: int) -> float:
        """Return the engine's time of a payload that is done, seconds since the epoch."""
        columns = self.columns
        return _decode_head(self.encoded[columns[START, place] : columns[END, place]].data).ts


def scan(messages: Bundle, received_at: float, *, max_frame_bytes: int, forward_session_ids: bool) -> Scanned:
    """Transcode what is well-formed; the rest is marked as given up."""
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
        MEDIA,
        out,
        columns,
    )
    return Scanned(out[:used], columns)


def warm_up() -> None:
    """Compile the scanner or load its code: seconds or a tenth of one, before streams are read."""
    scan(Bundle.of([(b"", bytes(8), b"")]), 0.0, max_frame_bytes=1, forward_session_ids=False)


def _media() -> Bytes:
    """Return a row for each spelling: place, number of fields, lengths, the spelling, the encoded fields."""
    meanings = [canonical_medium(raw or None) for raw in _SPELLINGS]
    rows = np.zeros((len(_SPELLINGS), MEDIUM_ROW), np.uint8)
    for row, raw, (medium, raw_medium) in zip(rows, _SPELLINGS, meanings, strict=True):
        fields = {"medium": medium} if medium != "gpu" else {}
        if raw_medium is not None:
            fields["raw_medium"] = raw_medium
        encoded = b"".join(msgspec.msgpack.encode(text) for field in fields.items() for text in field)
        row[MEDIUM_PLACE] = meanings.index((medium, raw_medium))
        row[MEDIUM_FIELDS] = len(fields)
        row[MEDIUM_RAW] = len(raw)
        row[MEDIUM_ENCODED] = len(encoded)
        head = MEDIUM_HEAD
        row[head : head + len(raw)] = np.frombuffer(raw.encode(), np.uint8)
        head += MAX_MEDIUM_BYTES
        row[head : head + len(encoded)] = np.frombuffer(encoded, np.uint8)
    return rows


MEDIA = _media()
