"""Encoded keys of payloads and of our records, and a value, for compiled code to compare and copy."""

from __future__ import annotations

import numpy as np
from msgspec.msgpack import encode

from connectors.normalise.scanner.layout import Bytes
from connectors.process.compiled import inner

_READ = ("type", "ts", "events", "LOCAL")
_WRITTEN = (
    ("type", "stored", "hashes"),
    ("type", "removed", "hashes"),
    ("type", "cleared"),
    ("block_size",),
    ("tokens",),
    ("parent",),
    ("group_idx",),
    ("spec_kind",),
    ("sliding_window",),
    ("lora",),
    ("store_only",),
    ("links",),
    ("salt",),
    ("session",),
)
_KEY_BYTES = 32
KEYS = np.zeros((len(_READ) + len(_WRITTEN), _KEY_BYTES), np.uint8)
"""A row for each key or sequence of keys: its length when encoded, then those bytes."""
for _row, _encoded in zip(
    KEYS,
    [encode(key) for key in _READ] + [b"".join(map(encode, keys)) for keys in _WRITTEN],
    strict=True,
):
    _row[0] = len(_encoded)
    _row[1 : 1 + len(_encoded)] = np.frombuffer(_encoded, np.uint8)
(
    K_TYPE,
    K_TS,
    K_EVENTS,
    K_LOCAL,
    W_STORED,
    W_REMOVED,
    W_CLEARED,
    W_SIZE,
    W_TOKENS,
    W_PARENT,
    W_GROUP,
    W_KIND,
    W_WINDOW,
    W_LORA,
    W_STORE_ONLY,
    W_LINKS,
    W_SALT,
    W_SESSION,
) = range(len(KEYS))


@inner
def is_text(data: Bytes, p: int, end: int, text: int) -> bool:
    """Tell whether the value at `p` is this short text."""
    size = np.int64(KEYS[text, 0])
    if end - p < size:
        return False
    same = True
    for i in range(size):
        same = same and data[p + i] == KEYS[text, 1 + i]
    return same


@inner
def put(out: Bytes, o: int, text: int) -> int:
    size = np.int64(KEYS[text, 0])
    for i in range(size):
        out[o + i] = KEYS[text, 1 + i]
    return int(o + size)
