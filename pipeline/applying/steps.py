"""Work in steps, between which others may have their turn."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

_Result = TypeVar("_Result")

Steps = Generator[None, None, _Result]


def at_once(steps: Steps[_Result]) -> _Result:
    """Take all steps; return what comes of them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result
