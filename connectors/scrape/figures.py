"""What a number on a metrics page may be: as much as the field of `EngineCounters` it goes into. No IO."""

from __future__ import annotations

import math
from dataclasses import dataclass

from msgspec import inspect

from schemas.events import DpRank, EngineCounters
from schemas.reasons import FigureRefusal

MAX_DIGITS = 20
"""Of a whole number in a label; all bounds have fewer, and longer ones are slow to read."""


class FigureRefused(ValueError):
    """A number that no engine can mean."""

    def __init__(self, reason: FigureRefusal) -> None:
        super().__init__(reason)
        self.reason: FigureRefusal = reason


@dataclass(frozen=True, slots=True)
class Bound:
    """The numbers that a field takes: from 0 to `most`, and only whole ones if `whole`."""

    most: float
    whole: bool

    def of_value(self, value: float) -> float:
        """Return a sample's value as the field has it. Raises FigureRefused."""
        if not math.isfinite(value):
            raise FigureRefused("not_a_number")
        if value < 0:
            raise FigureRefused("negative")
        if value > self.most:
            raise FigureRefused("too_large")
        return int(value) if self.whole else value

    def of_label(self, text: str) -> int:
        """Return the whole number that a label's value is. Raises FigureRefused."""
        if not (text.isascii() and text.isdigit()):
            raise FigureRefused("not_a_number")
        if len(text) > MAX_DIGITS or int(text) > self.most:
            raise FigureRefused("too_large")
        return int(text)


def _bound(kind: inspect.Type) -> Bound:
    """Return the bound of a field's type, None or not."""
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    for one in kinds:
        if isinstance(one, inspect.IntType | inspect.FloatType) and one.le is not None:
            return Bound(one.le, isinstance(one, inspect.IntType))
    raise TypeError(f"{kind} has no greatest number")


def _bounds() -> dict[str, Bound]:
    described = inspect.type_info(EngineCounters)
    assert isinstance(described, inspect.StructType)
    return {field.name: _bound(field.type) for field in described.fields}


BOUNDS = _bounds()
"""By field of `EngineCounters`."""
RANKS = _bound(inspect.type_info(DpRank))
