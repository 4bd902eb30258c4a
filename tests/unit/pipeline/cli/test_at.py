"""How a moment of the past is named on the command line."""

from __future__ import annotations

import time

import click
import pytest

from pipeline.cli.commands.at import at
from pipeline.cli.numbers import Moment


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
