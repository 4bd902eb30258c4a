"""The unit of a trace's times; pure. A unit that is only guessed is reported as assumed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pipeline.dates import read_date
from pipeline.traces.trace import BadField

UNITS = {
    "s": ("seconds", 1.0),
    "ms": ("milliseconds", 1e3),
    "us": ("microseconds", 1e6),
    "ns": ("nanoseconds", 1e9),
}
_LATEST = 4e18
_NUMBER = re.compile(r"\d+(\.\d+)?([eE][+-]?\d+)?")
_BY_SIZE = (("s", 1e9), ("ms", 1e12), ("us", 1e15), ("ns", 1e18))
"""Units, and their numbers since 1970 in 2001; up to four times as many, in 2096, are recognised."""


def moment(value: Any, name: str) -> float | datetime:
    """Return a time as the file has it: a number of some unit, or a date. Raises BadField."""
    if isinstance(value, str):
        text = value.strip()
        value = float(text) if _NUMBER.fullmatch(text) else _date(text)
    if isinstance(value, datetime):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _LATEST:
        return float(value)
    raise BadField(f"{name} is no time: neither a number nor a date")


def _date(text: str) -> datetime | None:
    try:
        return read_date(text)
    except ValueError:
        return None


def in_seconds(
    moments: Sequence[float | datetime], *, asked: str | None, said: str | None, by: str
) -> tuple[list[float], str]:
    """Return the times in seconds, and their unit with how it is known.

    `asked` is the unit that was given, `said` that of the file's form (`by` says where that one is from).
    Raises BadField for dates among numbers.
    """
    dates = [each for each in moments if isinstance(each, datetime)]
    if dates:
        if len(dates) < len(moments):
            raise BadField("some times are dates and some are numbers")
        return [each.timestamp() for each in dates], "dates"
    numbers = [each for each in moments if not isinstance(each, datetime)]
    unit, reason = _unit(numbers, asked, said, by)
    name, of_a_second = UNITS[unit]
    return [each / of_a_second for each in numbers], f"in {name}{reason}"


def _unit(numbers: Sequence[float], asked: str | None, said: str | None, by: str) -> tuple[str, str]:
    if asked:
        return asked, " (as given)"
    least, greatest = min(numbers), max(numbers)
    for unit, since_1970 in _BY_SIZE:
        if since_1970 <= least and greatest < 4 * since_1970:
            return unit, " since 1970 (by their size)"
    if said:
        return said, f" ({by})"
    if all(each.is_integer() for each in numbers):
        return "ms", ", assumed: they are whole numbers (--time-unit)"
    return "s", ", assumed: they have fractions (--time-unit)"
