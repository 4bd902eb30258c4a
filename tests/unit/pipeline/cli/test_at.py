"""How a moment of the past is named on the command line."""

from __future__ import annotations

import time

import click
import pytest

from pipeline.cli.commands.at import _answer, at
from pipeline.cli.numbers import Moment
from pipeline.index.following.past import Past
from pipeline.index.following.sources import Sources
from pipeline.index.index import Index


def test_moments_are_dates_or_seconds_ago() -> None:
    assert Moment().convert("2026-11-23T10:00:00", None, None) == 1_795_428_000
    assert Moment().convert("2026-11-23T12:00:00+02:00", None, None) == 1_795_428_000
    assert Moment().convert("2026-11-23T10:00:00.500Z", None, None) == 1_795_428_000.5
    before = time.time()
    assert before - 60 <= Moment().convert("-60", None, None) <= time.time() - 60


@pytest.mark.parametrize("text", ["yesterday", "-", "-x", "60"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="neither ISO 8601"):
        Moment().convert(text, None, None)


def test_seconds_ago_are_no_options() -> None:
    context = at.make_context("at", ["-3600", "--against", "-60", "--model", "m", "--hash", "-77"])
    assert context.params["hashes"] == ("-77",)
    assert context.params["against"] - context.params["moment"] == pytest.approx(3540, abs=5)


@pytest.mark.parametrize(
    ("first", "second", "both"), [(5.0, 7.0, 7.0), (5.0, None, 5.0), (None, 7.0, 7.0), (None, None, None)]
)
def test_what_two_moments_say_is_whole_only_where_both_are(
    first: float | None, second: float | None, both: float | None
) -> None:
    one, other = (Past(Index(sources := Sources()), sources, 0, reach) for reach in (first, second))
    assert _answer(one, other, 9.0)["whole_from"] == both
    assert _answer(one, None, 9.0)["whole_from"] == first
