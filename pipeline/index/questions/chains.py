"""Chains of block hashes, one after another in one array, the form in which the table looks them up."""

from __future__ import annotations

import contextlib
import itertools
import re
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.index.questions.refused import QuestionRefused
from pipeline.reading.columns import Hashes

AT_ONCE_PROMPTS, AT_ONCE_HASHES = 32, 4_096
"""Looked up in one go, which takes about a millisecond where many replicas hold them."""

_DIGEST_DIGITS = (16, 32, 64)
"""Of 8, 16 and 32 bytes."""
_KEPT_DIGITS = 16
_HEX = re.compile("[0-9a-fA-F]+")
_DECIMAL = re.compile("-?(0|[1-9][0-9]{0,19})")
_LARGEST, _SMALLEST = (1 << 64) - 1, -(1 << 63)

Hash = int | str
Chain = list[Hash]


class Chains(NamedTuple):
    """The hashes of k prompts."""

    hashes: Hashes
    """(blocks,): those of the first prompt, then those of the next."""
    ends: npt.NDArray[np.int64]
    """(k,): where each prompt ends."""

    @property
    def empty(self) -> int:
        """How many prompts have no hashes."""
        return len(self.ends) - int(np.count_nonzero(np.diff(self.ends, prepend=0)))

    def portions(self) -> Iterator[Chains]:
        """Yield the prompts in order, in portions small enough that other requests need not wait long."""
        first = begin = 0
        for at, end in enumerate(self.ends.tolist()):
            if at + 1 - first == AT_ONCE_PROMPTS or end - begin >= AT_ONCE_HASHES:
                yield Chains(self.hashes[begin:end], self.ends[first : at + 1] - begin)
                first, begin = at + 1, end
        if first < len(self.ends):
            yield Chains(self.hashes[begin:], self.ends[first:] - begin)


def chains_of(several: Sequence[Chain]) -> Chains:
    """Return prompts as chains; hashes may have any form that engines use. Raises QuestionRefused."""
    ends = np.fromiter(itertools.accumulate(map(len, several)), np.int64, len(several))
    return Chains(hashes_of([*itertools.chain.from_iterable(several)]), ends)


def hashes_of(chain: Chain) -> Hashes:
    """Return each hash reduced to 64 bits, as the connector does it. Raises QuestionRefused.

    Strings all have one form, since one program writes them: all are digests in hexadecimal digits, or all
    are numbers in decimal digits, which JSON writers use where numbers are exact up to 53 bits only.
    """
    unchecked: Any = chain
    with contextlib.suppress(TypeError, OverflowError):  # texts, or numbers with a sign
        return np.frombuffer(array("Q", unchecked), np.uint64)
    texts = [value for value in chain if isinstance(value, str)]
    decimal = bool(texts) and _are_decimal(texts)
    return np.array([_reduced(value, decimal=decimal) for value in chain], np.uint64)


def _are_decimal(texts: Sequence[str]) -> bool:
    """Return whether texts are decimal digits. Raises QuestionRefused if they may be hexadecimal as well."""
    if not all(map(_DECIMAL.fullmatch, texts)):
        return False
    if all(len(text) == _KEPT_DIGITS for text in texts):
        raise QuestionRefused(
            "bad_hash", f"decimal or hexadecimal: {texts[0]!r}; write 0x before hexadecimal digits"
        )
    return True


def _reduced(value: Hash, *, decimal: bool) -> int:
    if isinstance(value, str) and not decimal:
        return _of_digest(value)
    number = int(value)
    if not _SMALLEST <= number <= _LARGEST:
        raise QuestionRefused("bad_hash", f"a number of {number.bit_length()} bits; 64 are allowed")
    return number & _LARGEST


def _of_digest(text: str) -> int:
    digits = text[2:] if text[:2] in ("0x", "0X") else text
    if len(digits) not in _DIGEST_DIGITS or not _HEX.fullmatch(digits):
        raise QuestionRefused(
            "bad_hash", f"not a decimal number, and not 16, 32 or 64 hexadecimal digits: {text[:80]!r}"
        )
    return int(digits[-_KEPT_DIGITS:], 16)
