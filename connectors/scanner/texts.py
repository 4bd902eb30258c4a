"""Texts that payloads and records are made of, as encoded bytes, for compiled code to compare and copy."""

from __future__ import annotations

import numpy as np
from msgspec.msgpack import encode

from connectors.compiled import inner
from connectors.scanner.layout import Bytes

_READ = (
    "BlockStored",
    "BlockRemoved",
    "AllBlocksCleared",
    "type",
    "block_hashes",
    "parent_block_hash",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
    "session_id",
    "ts",
    "events",
)
_WRITTEN = (
    ("type", "stored", "hashes"),
    ("type", "removed", "hashes"),
    ("type", "cleared"),
    ("tokens",),
    ("parent",),
    ("spec_kind",),
    ("sliding_window",),
    ("lora",),
    ("session",),
)
_TEXT_BYTES = 32
TEXTS = np.zeros((len(_READ) + len(_WRITTEN), _TEXT_BYTES), np.uint8)
"""A row for each text: how many bytes it has when encoded, then those."""
for _row, _encoded in zip(
    TEXTS,
    [encode(text) for text in _READ] + [b"".join(map(encode, texts)) for texts in _WRITTEN],
    strict=True,
):
    _row[0] = len(_encoded)
    _row[1 : 1 + len(_encoded)] = np.frombuffer(_encoded, np.uint8)
(
    BLOCK_STORED,
    BLOCK_REMOVED,
    ALL_CLEARED,
    K_TYPE,
    K_HASHES,
    K_PARENT,
    K_SIZE,
    K_LORA_ID,
    K_MEDIUM,
    K_LORA,
    K_GROUP,
    K_KIND,
    K_WINDOW,
    K_SESSION,
    K_TS,
    K_EVENTS,
    W_STORED,
    W_REMOVED,
    W_CLEARED,
    W_TOKENS,
    W_PARENT,
    W_KIND,
    W_WINDOW,
    W_LORA,
    W_SESSION,
) = range(len(TEXTS))
W_SIZE, W_GROUP = K_SIZE, K_GROUP


@inner
def is_text(data: Bytes, p: int, end: int, text: int) -> bool:
    """Tell whether the value at `p` is this short text."""
    size = np.int64(TEXTS[text, 0])
    if end - p < size:
        return False
    same = True
    for i in range(size):
        same = same and data[p + i] == TEXTS[text, 1 + i]
    return same


@inner
def put(out: Bytes, o: int, text: int) -> int:
    size = np.int64(TEXTS[text, 0])
    for i in range(size):
        out[o + i] = TEXTS[text, 1 + i]
    return int(o + size)
