"""What schemas of figures say of keys and units."""

from __future__ import annotations

import pytest

from pipeline.generated.figures import key_of, said_of_figures, unit_of
from pipeline.generated.json_schema import record_schema
from pipeline.verify.keys import KEYS
from schemas.figures import FIGURES
from schemas.fleet_rows import ChoiceRow


@pytest.mark.parametrize("kind", FIGURES, ids=lambda kind: kind.TABLE)
def test_the_key_is_that_by_which_verify_compares(kind: type) -> None:
    told = said_of_figures()[FIGURES[kind].__name__]["x-key"]
    if kind is ChoiceRow:
        assert told == ["toStartOfHour(time)", "model", "replica", "request_id"]
    else:
        assert {*told} == {*KEYS[kind]}


def test_a_key_ends_where_the_sort_key_does() -> None:
    assert key_of("(toStartOfHour(window), model, window)") == ["model", "window"]
    assert key_of("(toStartOfHour(window), model)") == ["toStartOfHour(window)", "model"]
    assert key_of("model") == ["model"]


def test_units_are_in_the_schema() -> None:
    fields = record_schema(FIGURES_BY_NAME["FillsFigure"])["properties"]
    assert fields["cold_tokens"]["x-unit"] == "tokens"
    assert fields["cold_blocks"]["x-unit"] == "blocks"
    assert "x-unit" not in fields["version"]
    assert fields["table"] == {"enum": ["fills_10s"], "description": "Table that the row is of."}
    assert unit_of("lag_seconds") == "seconds"
    assert unit_of("tokens") == "tokens"
    assert unit_of("model") is None


FIGURES_BY_NAME = {figure.__name__: figure for figure in FIGURES.values()}
