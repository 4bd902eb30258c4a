"""Moments on the command line."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any

import click


class Moment(click.ParamType):
    """A time as ISO 8601, UTC unless it says otherwise, or so many seconds ago as `-SECONDS`."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            if value.startswith("-"):
                return time.time() + float(value)
            found = datetime.fromisoformat(value.replace("Z", "+00:00"))
        except ValueError:
            self.fail(f"{value!r} is neither ISO 8601, as 2026-11-23T10:00:00, nor -SECONDS", param, ctx)
        return found.replace(tzinfo=found.tzinfo or timezone.utc).timestamp()
