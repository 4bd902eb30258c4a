"""Values of `kvlens whatif`: several with commas between them, and sizes of caches."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from pipeline.simulator.traffic.routing import ROUTINGS, Routing

_SIZE = re.compile(r"(\+?)([1-9]\d{0,14})(t?)")


@dataclass(frozen=True, slots=True)
class Capacity:
    """The size of one cache; without an `amount` it is endless."""

    amount: int | None
    in_tokens: bool = False
    extra: bool = False
    """Whether this is added to the recorded size."""


class Several(click.ParamType):
    """One or more values with commas between them, each once."""

    def __init__(self, name: str, one: Callable[[str], Any]) -> None:
        """`one` reads a value, and raises ValueError with a message."""
        self.name = name
        self._one = one

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return tuple(dict.fromkeys(self._one(word.strip()) for word in value.split(",")))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def replicas(word: str) -> int:
    """Read a number of replicas."""
    if not re.fullmatch(r"[1-9]\d{0,3}", word):
        raise ValueError(f"{word!r} is not a number of replicas")
    return int(word)


def capacity(word: str) -> Capacity:
    """Read the size of a cache."""
    if word == "none":
        return Capacity(None)
    found = _SIZE.fullmatch(word)
    if found is None:
        raise ValueError(f"{word!r} is no capacity; write blocks (4000), tokens (2000000t) or none")
    return Capacity(int(found[2]), in_tokens=bool(found[3]), extra=bool(found[1]))


def routing(word: str) -> Routing:
    """Read a routing."""
    for known in ROUTINGS:
        if known == word:
            return known
    raise ValueError(f"{word!r} is not one of {', '.join(ROUTINGS)}")
