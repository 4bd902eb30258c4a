"""A compiled reader of hashes that are written as whole numbers, as most are.

It reads only what is certainly valid; everything else, errors included, is left to the JSON decoder.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import compiled, inlined
from pipeline.index.questions.chains import Chains
from pipeline.reading.columns import Hashes

Text = npt.NDArray[np.uint8]

_UNSURE: Final = -1
_TAB, _NEWLINE, _RETURN, _SPACE = 9, 10, 13, 32
_COMMA, _MINUS, _ZERO, _NINE, _OPENS, _CLOSES = 44, 45, 48, 57, 91, 93
_MOST_DIGITS: Final = 20
_CERTAIN_DIGITS: Final = 19
"""A number of at most this many digits always fits into 64 bits."""
_LAST_TENTH: Final = np.uint64((1 << 64) // 10)
_LAST_DIGIT: Final = np.uint64(5)
_SMALLEST: Final = np.uint64(1 << 63)
"""The smallest signed number, without its sign."""
_TEN: Final = np.uint64(10)
_NOTHING: Final = np.uint64(0)


def read_digits(text: bytes, *, several: bool, most_hashes: int) -> Chains | None:
    """Return the chain in a JSON array of whole numbers or, if `several`, the chains in an array of arrays.

    Return None if unsure: for anything other than 64-bit numbers, and for more numbers, or chains, than
    `most_hashes`.
    """
    room = min(most_hashes, len(text))
    hashes, ends = np.empty(room, np.uint64), np.empty(room, np.int64)
    count = _read(np.frombuffer(text, np.uint8), several, hashes, ends)
    if count == _UNSURE:
        return None
    return Chains(hashes[: ends[count - 1] if count else 0], ends[:count])


@inlined
def _past_space(text: Text, at: int) -> int:
    while at < len(text) and text[at] in (_SPACE, _NEWLINE, _RETURN, _TAB):
        at += 1
    return at


@compiled
def _read(text: Text, several: bool, hashes: Hashes, ends: npt.NDArray[np.int64]) -> int:
    """Write the hashes, and where each chain ends; return how many chains there are, or _UNSURE."""
    at = _past_space(text, 0)
    chains = 0
    used = 0
    if not several:
        at, used = _read_chain(text, at, hashes, 0)
        if at == _UNSURE or _past_space(text, at) != len(text) or len(ends) == 0:
            return _UNSURE
        ends[0] = used
        return 1
    if at == len(text) or text[at] != _OPENS:
        return _UNSURE
    at = _past_space(text, at + 1)
    if at < len(text) and text[at] == _CLOSES:
        return 0 if _past_space(text, at + 1) == len(text) else _UNSURE
    while chains < len(ends):
        at, used = _read_chain(text, at, hashes, used)
        if at == _UNSURE:
            return _UNSURE
        ends[chains] = used
        chains += 1
        at = _past_space(text, at)
        if at == len(text):
            return _UNSURE
        if text[at] == _CLOSES:
            return chains if _past_space(text, at + 1) == len(text) else _UNSURE
        if text[at] != _COMMA:
            return _UNSURE
        at = _past_space(text, at + 1)
    return _UNSURE


@compiled
def _read_chain(text: Text, at: int, hashes: Hashes, used: int) -> tuple[int, int]:
    """Write the hashes of the array at `at`; return where it ends, and how many are written by then."""
    if at == len(text) or text[at] != _OPENS:
        return _UNSURE, used
    at = _past_space(text, at + 1)
    if at < len(text) and text[at] == _CLOSES:
        return at + 1, used
    while used < len(hashes):
        negative = at < len(text) and text[at] == _MINUS
        if negative:
            at += 1
        begin = at
        number = _NOTHING
        while at < len(text) and _ZERO <= text[at] <= _NINE:
            digit = np.uint64(text[at] - _ZERO)
            if at - begin >= _CERTAIN_DIGITS and (
                at - begin >= _MOST_DIGITS
                or number > _LAST_TENTH
                or (number == _LAST_TENTH and digit > _LAST_DIGIT)
            ):
                return _UNSURE, used
            number = number * _TEN + digit
            at += 1
        if at == begin or (text[begin] == _ZERO and at - begin > 1) or (negative and number > _SMALLEST):
            return _UNSURE, used
        hashes[used] = ~number + np.uint64(1) if negative else number
        used += 1
        at = _past_space(text, at)
        if at == len(text):
            return _UNSURE, used
        if text[at] == _CLOSES:
            return at + 1, used
        if text[at] != _COMMA:
            return _UNSURE, used
        at = _past_space(text, at + 1)
    return _UNSURE, used
