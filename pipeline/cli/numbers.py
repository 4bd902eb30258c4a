"""Numbers on the command line: those that nothing could work with are refused where they are given."""

from __future__ import annotations

import math
from typing import Any

import click

MOST = 1e12
"""Beyond any number of seconds, tokens or blocks."""
_SHOWN_CHARACTERS = 40


def _within(kind: click.ParamType, value: Any, found: float, context: tuple[Any, Any]) -> None:
    if not math.isfinite(found) or abs(found) > MOST:
        text = str(value)
        shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
        kind.fail(f"{shown!r} is no number up to {MOST:,.0f}", *context)


class Amount(click.FloatRange):
    """A finite number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a float. Fails where it is none, out of the range, infinite, or no number."""
        found = super().convert(value, param, ctx)
        _within(self, value, found, (param, ctx))
        return found


class Whole(click.IntRange):
    """A whole number that fits everywhere."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return an int. Fails where it is none, or out of the range."""
        found = super().convert(value, param, ctx)
        _within(self, value, found, (param, ctx))
        return found
