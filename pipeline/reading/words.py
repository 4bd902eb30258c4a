"""Words of events records, for compiled code to compare."""

from __future__ import annotations

from typing import Final

import numpy as np

from connectors.process.compiled import inner
from connectors.process.msgpack import Bytes

_KEYS: Final = (
    "type",
    "hashes",
    "block_size",
    "tokens",
    "parent",
    "medium",
    "raw_medium",
    "group_idx",
    "spec_kind",
    "sliding_window",
    "lora",
    "session",
    "store_only",
    "size_bytes",
    "links",
    "salt",
)
"""Of events, in the order in which they are written."""
(
    TYPE,
    HASHES,
    BLOCK_SIZE,
    TOKENS,
    PARENT,
    MEDIUM,
    RAW_MEDIUM,
    GROUP_IDX,
    SPEC_KIND,
    SLIDING_WINDOW,
    LORA,
    SESSION,
    STORE_ONLY,
    SIZE_BYTES,
    LINKS,
    SALT,
) = range(len(_KEYS))
_VALUES: Final = ("stored", "removed", "gpu")
STORED, REMOVED, GPU = range(len(_KEYS), len(_KEYS) + len(_VALUES))

WORDS: Final = np.zeros((len(_KEYS) + len(_VALUES), 16), np.uint8)
"""A row for each word: how long it is, then its bytes."""
for _row, _word in zip(WORDS, (*_KEYS, *_VALUES), strict=True):
    _row[: 1 + len(_word)] = len(_word), *_word.encode()

NO_WORD: Final = -1
_SHORT_TEXT: Final = 0xA0


@inner
def is_word(data: Bytes, start: int, size: int, word: int) -> bool:
    """Return whether the text of `size` bytes, which must be there, is this word."""
    if size != np.int64(WORDS[word, 0]):
        return False
    same = True
    for i in range(size):
        same = same and data[start + i] == WORDS[word, 1 + i]
    return same


@inner
def key_at(data: Bytes, p: int, end: int, likely: int) -> tuple[int, int]:
    """Return (key, position after it) of the key of an event at `p`; NO_WORD if it is none.

    `likely`: the one to compare with first.
    """
    if p >= end:
        return NO_WORD, p
    size = np.int64(data[p]) - _SHORT_TEXT
    if size < 0 or end - p <= size:
        return NO_WORD, p
    key = likely
    for _ in range(STORED):
        if key >= STORED:
            key = 0
        if is_word(data, p + 1, size, key):
            return key, p + 1 + size
        key += 1
    return NO_WORD, p
