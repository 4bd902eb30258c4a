"""The entry point: transcode many payloads in one call."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from connectors.frames.bundle import MAX_SEQUENCE, MESSAGE_END, MESSAGE_SEQ, MESSAGE_START
from connectors.normalise.columns import (
    DONE,
    END,
    EVENTS,
    FINGERPRINT,
    GAVE_UP,
    NO_RANK,
    PAYLOAD_BYTES,
    PUBLISHED_AT,
    RANK,
    SEQ,
    SKIPPED,
    START,
    STATUS,
    STRETCH_END,
)
from connectors.normalise.scanner.batches import put_batch
from connectors.normalise.scanner.blake2b import STATE, Words
from connectors.normalise.scanner.forms import FIELDS
from connectors.normalise.scanner.layout import MAX_DEPTH, Bytes, Ints
from connectors.process.compiled import (
    compiled_nogil,
    inner,
    pointer_to_bytes,
    pointer_to_numbers,
    pointer_to_words,
)


def _crc_table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1).astype(np.uint32)
    return table


_CRC = _crc_table()
_FINGERPRINTED_BYTES = 64

PART_END, PART_DATA, PART_RECEIVED_AT = range(3)
PARTS = 3
"""Rows of the table of bundles: where its messages end, where its data begin, bits of its time of receipt."""


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
    messages: Ints,
    parts: Ints,
    max_bytes: int,
    content: Words,
    names: Words,
    named: int,
    forms: Bytes,
    media: Bytes,
    out: Bytes,
    result: Ints,
) -> int:
    """Transcode the payloads of bundles, one bundle after the other, into `out`; return bytes written.

    `messages` are the bundles' tables, each with positions in its own data; column k of `parts` is bundle k.
    `forms` and `media` are tables of `connectors.normalise.scan_tables`. Payloads above `max_bytes` are not
    looked at. `content` and `names` are the states of `blake2b.state_of` from which links of blocks and names
    of what is `named` are made; empty: none are made. Column i of `result` says what became of payload i;
    STRETCH_END is the end (exclusive, an index in its bundle) of the stretch that begins here: done payloads
    with consecutive numbers, whose batches lie side by side in `out`.
    """
    field_array = np.empty(FIELDS, np.int64)
    stack_array = np.empty(MAX_DEPTH, np.int64)
    fields = pointer_to_numbers(field_array.ctypes.data)
    stack = pointer_to_numbers(stack_array.ctypes.data)
    source = pointer_to_bytes(data.ctypes.data)
    target = pointer_to_bytes(out.ctypes.data)
    form_rows = pointer_to_bytes(forms.ctypes.data)
    media_rows = pointer_to_bytes(media.ctypes.data)
    links = content.size == STATE
    word_array = np.zeros(2 * STATE, np.uint64)
    # Copied in loops: numba's assignment of arrays takes seconds to compile, with its messages about shapes.
    for k in range(content.size):
        word_array[k] = content[k]
    words = pointer_to_words(word_array.ctypes.data)
    name_array = np.zeros(2 * STATE, np.uint64)
    for k in range(names.size):
        name_array[k] = names[k]
    name_words = pointer_to_words(name_array.ctypes.data)
    limit = out.size
    # An int64: for a constant numba would compile everything below `put_batch` a second time.
    o = int(np.int64(0))
    first = 0
    starts, ends, seqs = messages[MESSAGE_START], messages[MESSAGE_END], messages[MESSAGE_SEQ]
    for part in range(parts.shape[1]):
        behind_part = parts[PART_END, part]
        before = parts[PART_DATA, part]
        received_at = parts[PART_RECEIVED_AT, part]
        for i in range(first, behind_part):
            start = before + starts[i]
            end = before + ends[i]
            result[STATUS, i] = GAVE_UP
            result[SEQ, i] = seqs[i]
            result[START, i] = o
            result[PAYLOAD_BYTES, i] = end - start
            result[FINGERPRINT, i] = _fingerprint(source, start, end)
            result[EVENTS, i] = 0
            result[SKIPPED, i] = 0
            result[RANK, i] = NO_RANK
            result[PUBLISHED_AT, i] = 0
            if seqs[i] >= 0 and seqs[i] < MAX_SEQUENCE and end - start <= max_bytes:
                behind, events, skipped, rank, ts = put_batch(
                    source,
                    start,
                    end,
                    seqs[i],
                    received_at,
                    links,
                    words,
                    named,
                    name_words,
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
                    result[SKIPPED, i] = skipped
                    result[RANK, i] = rank
                    for k in range(ts + 1, ts + 9):
                        result[PUBLISHED_AT, i] = result[PUBLISHED_AT, i] << 8 | np.int64(source[k])
            result[END, i] = o
        for i in range(behind_part - 1, first - 1, -1):
            result[STRETCH_END, i] = i + 1 - first
            both = i + 1 < behind_part and result[STATUS, i] == DONE and result[STATUS, i + 1] == DONE
            if both and seqs[i + 1] == seqs[i] + 1:
                result[STRETCH_END, i] = result[STRETCH_END, i + 1]
        first = behind_part
    # The arrays must outlive their pointers.
    field_array[0] = stack_array[0] = word_array[0] = name_array[0] = 0
    return o
