"""Numbers and moments as values of options."""

from __future__ import annotations

import math
import time
from typing import Any

import click

from pipeline.dates import read_date
from schemas.events import LATEST

MOST = 1e12
"""More than any number of seconds, tokens or blocks that makes sense."""
_SHOWN_CHARACTERS = 40


class _Bounded(click.ParamType):
    """Refuses what is not finite, or more than makes sense."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not abs(found) <= MOST:  # refuses NaN, too
            text = str(value)
            shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
            self.fail(f"{shown!r} is no number up to {MOST:,.0f}", param, ctx)
        return found


class Amount(_Bounded, click.FloatRange):
    """A finite number."""


class Whole(_Bounded, click.IntRange):
    """A whole number that fits everywhere."""


class Moment(click.ParamType):
    """A time as ISO 8601, UTC unless it says otherwise, or so many seconds ago as `-SECONDS`."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            moment = _seconds(value)
        except ValueError:
            self.fail(f"{value!r} is neither ISO 8601, as 2026-11-23T10:00:00, nor -SECONDS", param, ctx)
        except OverflowError:  # the years 1 and 9999 in some zones
            moment = math.inf
        if not 0 <= moment <= LATEST:  # refuses NaN, too
            self.fail(f"{value!r} is not between the years 1970 and 2100", param, ctx)
        return moment


def _seconds(text: str) -> float:
    """Return seconds since the epoch. Raises ValueError, OverflowError."""
    if text.startswith("-"):
        return time.time() + float(text)
    return read_date(text).timestamp()
