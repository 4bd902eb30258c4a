"""Errors that say their data as annotations and their text as a template."""

from __future__ import annotations

from dataclasses import field

import pytest

from connectors.normalise.errors import EventError, UnknownType
from connectors.process.errors import DataError, OperatorError
from pipeline.errors import StoreBusy, StoreUnavailable


class Late(OperatorError):
    """Has a number that is formatted, a default, and something that is only said by name."""

    who: str
    seconds: float
    where: str = "here"
    heals: bool = field(default=True, kw_only=True)
    line = "{who!r} is {seconds:.1f} s late {where}"


def test_attributes_are_the_arguments_and_fill_the_line() -> None:
    error = Late("{seconds}", 12.345)
    assert (error.who, error.seconds, error.where, error.heals) == ("{seconds}", 12.345, "here", True)
    assert str(error) == "'{seconds}' is 12.3 s late here"
    assert not Late("a", 1.0, heals=False).heals


def test_a_constructor_takes_what_is_annotated_and_no_more() -> None:
    for arguments in ((), ("a",), ("a", 1.0, "there", False), ("a", 1.0, "there", True, 5)):
        with pytest.raises(TypeError):
            Late(*arguments)  # type: ignore[arg-type, call-arg]


def test_errors_are_raised_chained_and_compared_as_any_others() -> None:
    one, other = Late("a", 1.0), Late("a", 1.0)
    assert len({one, other}) == 2
    cause = ValueError("first")
    with pytest.raises(Late, match="late here") as raised:
        raise one from cause
    assert raised.value.__cause__ is cause


def test_a_line_names_only_what_the_error_has() -> None:
    with pytest.raises(TypeError, match="Wrong names"):

        class Wrong(DataError):
            who: str
            line = "{who} and {whom}"


def test_what_a_subclass_says_takes_the_place_of_what_its_base_says() -> None:
    unknown = UnknownType("Moved", None)
    assert isinstance(unknown, EventError)
    assert (unknown.reason, unknown.name, unknown.medium, str(unknown)) == (
        "unknown_type",
        "Moved",
        None,
        "unknown_type",
    )
    busy = StoreBusy("http://ch:8123", "too slow", lacks="time", advice="wait", seconds=3.0)
    assert isinstance(busy, StoreUnavailable)
    assert (busy.heals, busy.seconds) == (True, 3.0)
    assert str(busy) == "ClickHouse at http://ch:8123 is busy: too slow; wait"
