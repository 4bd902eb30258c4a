"""Moments on the command line."""

from __future__ import annotations

import math
import time
from datetime import datetime, timezone
from typing import Any

import click

from schemas.events import LATEST


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
        except OverflowError:  # of the years 1 and 9999 in some zones
            moment = math.inf
        if not 0 <= moment <= LATEST:  # which leaves out what is no number, too
            self.fail(f"{value!r} is not between the years 1970 and 2100", param, ctx)
        return moment


def _seconds(text: str) -> float:
    """Return seconds since the epoch. Raises ValueError, OverflowError."""
    if text.startswith("-"):
        return time.time() + float(text)
    found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return found.replace(tzinfo=found.tzinfo or timezone.utc).timestamp()
