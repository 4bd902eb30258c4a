"""The entry: many payloads in one call."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from connectors.normalise.columns import (
    DONE,
    END,
    EVENTS,
    FINGERPRINT,
    GAVE_UP,
    PAYLOAD_BYTES,
    SEQ,
    START,
    STATUS,
    STRETCH_END,
)
from connectors.normalise.scanner.batches import put_batch
from connectors.normalise.scanner.forms import FIELDS
from connectors.normalise.scanner.layout import MAX_DEPTH, Bytes, Ints
from connectors.process.compiled import compiled_nogil, inner, pointer_to_bytes, pointer_to_numbers


def _crc_table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1).astype(np.uint32)
    return table


_CRC = _crc_table()
_MAX_SEQUENCE = 1 << 48
_FINGERPRINTED_BYTES = 64


@inner
def _fingerprint(data: Bytes, start: int, end: int) -> int:
    """Return `connectors.order.sequence.fingerprint_of` of a payload."""
    crc = np.uint32(~np.uint32(end - start))
    for i in range(start, min(end, start + _FINGERPRINTED_BYTES)):
        crc = (crc >> np.uint32(8)) ^ _CRC[(crc ^ np.uint32(data[i])) & np.uint32(0xFF)]
    return int(np.uint32(~crc))


@compiled_nogil
def transcode(
    data: Bytes,
    starts: Ints,
    ends: Ints,
    seqs: Ints,
    max_bytes: int,
    received_at: Bytes,
    sessions: bool,
    forms: Bytes,
    media: Bytes,
    out: Bytes,
    result: Ints,
) -> int:
    """Transcode payloads `data[starts[i]:ends[i]]` numbered `seqs` into `out`; return bytes written.

    `received_at` is an encoded float, `forms` and `media` are tables of `connectors.normalise.scan_tables`.
    A negative number in `seqs` marks a message that has no payload, and payloads above `max_bytes` are not
    looked at. Column i of `result` says what became of payload i; STRETCH_END is the index behind the last
    payload of an unbroken stretch of done ones with consecutive numbers that begins here, whose batches lie
    side by side in `out`.
    """
    field_array = np.empty(FIELDS, np.int64)
    stack_array = np.empty(MAX_DEPTH, np.int64)
    fields = pointer_to_numbers(field_array.ctypes.data)
    stack = pointer_to_numbers(stack_array.ctypes.data)
    source = pointer_to_bytes(data.ctypes.data)
    target = pointer_to_bytes(out.ctypes.data)
    form_rows = pointer_to_bytes(forms.ctypes.data)
    media_rows = pointer_to_bytes(media.ctypes.data)
    stamp = pointer_to_bytes(received_at.ctypes.data)
    limit = out.size
    o = 0
    count = seqs.size
    for i in range(count):
        start = starts[i]
        end = ends[i]
        result[STATUS, i] = GAVE_UP
        result[SEQ, i] = seqs[i]
        result[START, i] = o
        result[PAYLOAD_BYTES, i] = end - start
        result[FINGERPRINT, i] = _fingerprint(source, start, end)
        result[EVENTS, i] = 0
        if seqs[i] >= 0 and seqs[i] < _MAX_SEQUENCE and end - start <= max_bytes:
            behind, events = put_batch(
                source,
                start,
                end,
                seqs[i],
                stamp,
                sessions,
                form_rows,
                media_rows,
                fields,
                stack,
                target,
                limit,
                o,
            )
            if behind >= 0:
                o = behind
                result[STATUS, i] = DONE
                result[EVENTS, i] = events
        result[END, i] = o
    for i in range(count - 1, -1, -1):
        result[STRETCH_END, i] = i + 1
        both = i + 1 < count and result[STATUS, i] == DONE and result[STATUS, i + 1] == DONE
        if both and seqs[i + 1] == seqs[i] + 1:
            result[STRETCH_END, i] = result[STRETCH_END, i + 1]
    # The arrays must outlive their pointers.
    field_array[0] = stack_array[0] = 0
    return o
