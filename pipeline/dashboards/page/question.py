"""What a browser asks of a panel, checked: a range of time, and the models, replicas and roles chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

from connectors.process.errors import DataError

POINTS = 240
"""How many points of time a chart should have."""
STEPS = (10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400)
"""Seconds that a point of time may cover."""
MAX_RANGE_SECONDS = 2 * 366 * 86400
MAX_CHOSEN = 200
MAX_NAME = 200
_LATEST = 4_000_000_000


class BadQuestion(DataError):
    """A browser asked for what cannot be answered."""

    parameter: str
    reason: str
    line = "{parameter}: {reason}"


class Question(NamedTuple):
    """A range in seconds since the epoch, and the models, replicas and roles chosen, none for all."""

    start: int
    end: int
    models: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()

    @property
    def step(self) -> int:
        """The seconds that a point of time covers."""
        fitting = (step for step in STEPS if step * POINTS >= self.end - self.start)
        return next(fitting, STEPS[-1])

    def parameters(self, used: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of the parameters that a statement uses."""
        values = {
            "from": datetime.fromtimestamp(self.start, timezone.utc),
            "to": datetime.fromtimestamp(self.end, timezone.utc),
            "step": self.step,
            "model": list(self.models),
            "replica": list(self.replicas),
            "role": list(self.roles),
        }
        return {name: values[name] for name in used}


def parse(fields: Mapping[str, Sequence[str]]) -> Question:
    """Return the question in the fields of a query string; raises BadQuestion."""
    start, end = _seconds(fields, "from"), _seconds(fields, "to")
    if not start < end:
        raise BadQuestion("from", "must be before to")
    if end - start > MAX_RANGE_SECONDS:
        raise BadQuestion("from", "the range is longer than two years")
    return Question(start, end, *(_names(fields, name) for name in ("model", "replica", "role")))


def _seconds(fields: Mapping[str, Sequence[str]], name: str) -> int:
    values = fields.get(name, ())
    if len(values) != 1 or not values[0].isascii() or not values[0].isdigit() or len(values[0]) > 10:
        raise BadQuestion(name, "must be given once, as whole seconds since the epoch")
    if (seconds := int(values[0])) > _LATEST:
        raise BadQuestion(name, "is too far in the future")
    return seconds


def _names(fields: Mapping[str, Sequence[str]], name: str) -> tuple[str, ...]:
    values = tuple(dict.fromkeys(fields.get(name, ())))
    if len(values) > MAX_CHOSEN:
        raise BadQuestion(name, f"more than {MAX_CHOSEN} chosen")
    if any(len(value) > MAX_NAME for value in values):
        raise BadQuestion(name, f"longer than {MAX_NAME} characters")
    return values
