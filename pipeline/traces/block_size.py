"""How many tokens a hash id covers, from the lengths of prompts and the numbers of their ids; pure.

Publishers count a last block that is not full, or do not; one that does may count an empty one after a full
last block. Each request bounds the size, and all together they nearly always leave one obvious choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

FROM_IDS = "input_length ÷ ids"


@dataclass(frozen=True, slots=True)
class Counted:
    """A request that looks up at least one block."""

    where: str
    tokens: int
    ids: int

    def __str__(self) -> str:
        return f"{self.tokens:,} tokens in {self.ids:,} blocks"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Least and greatest size, and the requests that set them; None: nothing bounds it above."""

    least: int
    greatest: int | None
    by_least: Counted | None = None
    by_greatest: Counted | None = None

    def hold(self, size: int) -> bool:
        return self.least <= size and (self.greatest is None or size <= self.greatest)

    @property
    def contradict(self) -> bool:
        return self.greatest is not None and self.greatest < self.least

    def __str__(self) -> str:
        return f"{self.least:,} or more" if self.greatest is None else f"{self.least:,} to {self.greatest:,}"


def _with_last(each: Counted) -> tuple[int, int | None]:
    return -(-each.tokens // each.ids), each.tokens // (each.ids - 1) if each.ids > 1 else None


def _full_only(each: Counted) -> tuple[int, int | None]:
    return each.tokens // (each.ids + 1) + 1, each.tokens // each.ids


def _either(each: Counted) -> tuple[int, int | None]:
    return _full_only(each)[0], _with_last(each)[1]


def bounds(counted: Iterable[Counted], rule: Callable[[Counted], tuple[int, int | None]] = _either) -> Bounds:
    """Return the sizes that all requests allow; by default each request may count its last block or not."""
    found = Bounds(1, None)
    for each in counted:
        least, greatest = rule(each)
        if least > found.least:
            found = Bounds(least, found.greatest, each, found.by_greatest)
        if greatest is not None and (found.greatest is None or greatest < found.greatest):
            found = Bounds(found.least, greatest, found.by_least, each)
    return found


def inferred(counted: Sequence[Counted]) -> Bounds:
    """Return the bounds by the first rule that all requests keep; if there is none, they may contradict."""
    for rule in (_with_last, _full_only):
        found = bounds(counted, rule)
        if not found.contradict:
            return found
    return bounds(counted)


def chosen(found: Bounds) -> int | None:
    """Return the only size, the only power of two, or the only multiple of 16; None: there are several."""
    if found.least == found.greatest:
        return found.least
    if found.greatest is None:
        return None
    for sizes in (
        [1 << k for k in range(32) if found.hold(1 << k)],
        [16 * k for k in range(-(-found.least // 16), min(found.greatest // 16, found.least // 16 + 2) + 1)],
    ):
        if len(sizes) == 1:
            return sizes[0]
        if sizes:
            return None
    return None
