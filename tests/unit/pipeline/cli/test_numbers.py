"""Numbers and moments on the command line that nothing could work with."""

from __future__ import annotations

import click
import pytest

from pipeline.cli.commands.advise import advise
from pipeline.cli.commands.doctor import doctor
from pipeline.cli.commands.verify import _offset
from pipeline.cli.numbers import Amount, Moment, Whole


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e400", "1e13", "-1e13", "9" * 5000, "x", ""])
def test_amounts_are_finite(text: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        Amount().convert(text, None, None)
    assert Amount(0).convert("2.5", None, None) == 2.5
    if text[:1] == "9":
        assert len(str(refused.value)) < 200


@pytest.mark.parametrize("text", ["1e3", "9" * 30, "-" + "9" * 30, "9" * 400, "9" * 5000, "1.5", "nan", ""])
def test_whole_numbers_fit(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Whole().convert(text, None, None)
    assert Whole(1).convert("70000", None, None) == 70_000


@pytest.mark.parametrize(
    "text",
    [
        *("1960-01-01", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2101-01-01"),
        *("-1e30", "-inf", "-nan", "-1e400"),
    ],
)
def test_moments_are_those_that_a_log_can_hold(text: str) -> None:
    with pytest.raises(click.BadParameter, match="between the years 1970 and 2100"):
        Moment().convert(text, None, None)


@pytest.mark.parametrize(
    "text",
    [
        *("2026-11-23T10:00:00.5", "2026-11-23 10:00:00,500000001Z", "2026-11-23T11:00:00.5+0100"),
        *("2026-11-23T04:30:00.5-05:30", "2026-11-23 12:00:00.5 +02"),
    ],
)
def test_moments_have_fractions_and_zones_with_any_python(text: str) -> None:
    assert Moment().convert(text, None, None) == 1_795_428_000.5


@pytest.mark.parametrize("text", ["9" * 5000 + "m", "²m", "1e3m", "9999999999999d", "0m", "-1m", "m"])
def test_ranges(text: str) -> None:
    with pytest.raises(click.BadParameter):
        advise.make_context("advise", ["--range", text])


@pytest.mark.parametrize("text", ["9" * 5000, "²", "-1", "1.5", ""])
def test_offsets(text: str) -> None:
    with pytest.raises(click.BadParameter):
        _offset(text)


def test_options_use_them() -> None:
    with pytest.raises(click.BadParameter):
        doctor.make_context("doctor", ["--timeout", "nan"])
