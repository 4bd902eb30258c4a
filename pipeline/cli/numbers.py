"""Numbers and moments as values of options."""

from __future__ import annotations

import math
import time
from datetime import datetime, timezone
from typing import Any

import click

from schemas.events import LATEST

MOST = 1e12
"""More than any number of seconds, tokens or blocks that makes sense."""
_SHOWN_CHARACTERS = 40


def _within(kind: click.ParamType, value: Any, found: float, context: tuple[Any, Any]) -> None:
    if not abs(found) <= MOST:  # refuses NaN, too
        text = str(value)
        shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
        kind.fail(f"{shown!r} is no number up to {MOST:,.0f}", *context)


class Amount(click.FloatRange):
    """A finite number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a float. Fails if the value is not a number, not finite or out of range."""
        found = super().convert(value, param, ctx)
        _within(self, value, found, (param, ctx))
        return found


class Whole(click.IntRange):
    """A whole number that fits everywhere."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return an int. Fails if the value is not one, or out of range."""
        found = super().convert(value, param, ctx)
        _within(self, value, found, (param, ctx))
        return found


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
    found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return found.replace(tzinfo=found.tzinfo or timezone.utc).timestamp()
