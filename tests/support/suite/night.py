"""What runs by day, and what waits for the night: values of parameters, seeds, examples of Hypothesis.

A test that walks at random runs one or two of its seeds by day and all of them at night.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings

ALL_EXAMPLES = 100
"""Hypothesis' own default, of which a profile of the day has fewer (`tests/conftest.py`)."""


def at_night(values: Iterable[Any]) -> list[ParameterSet]:
    """Return the values of a parameter, each marked for the night."""
    return [pytest.param(value, marks=pytest.mark.night) for value in values]


def night_rows(*rows: tuple[Any, ...]) -> list[ParameterSet]:
    """Return rows of several parameters, each marked for the night."""
    return [pytest.param(*row, marks=pytest.mark.night) for row in rows]


def first_by_day(values: Iterable[Any], count: int = 1) -> list[Any]:
    """Return the values of a parameter: so many of the first by day, all others at night."""
    listed = list(values)
    return [*listed[:count], *at_night(listed[count:])]


def by_day(values: Iterable[Any], chosen: Collection[Any]) -> list[Any]:
    """Return the values of a parameter in their order: those chosen by day, all others at night."""
    listed = list(values)
    if missing := [value for value in chosen if value not in listed]:
        raise ValueError(f"no value of the parameter: {missing}")
    return [value if value in chosen else at_night([value])[0] for value in listed]


def examples(most: int) -> settings:
    """Return settings of so many examples at night, and of the profile's share of them by day."""
    return settings(max_examples=max(1, most * settings().max_examples // ALL_EXAMPLES))
