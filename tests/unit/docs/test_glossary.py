"""Every term of the glossary says where it lives, and that place exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline.generated.pages.tables import tables_and_views

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "glossary.md").read_text("utf-8")
TERMS = dict(re.findall(r"^### (.+?)\n\n(.+?)(?=\n\n#|\Z)", TEXT, re.M | re.S))
TABLES, VIEWS = tables_and_views()


def places(term: str) -> tuple[str, list[str]]:
    """The meaning of a term, and the names in code style that say where it is."""
    meaning, _, where = TERMS[term].partition("\n*In:* ")
    return meaning, re.findall(r"`([^`]+)`", where)


def is_place(name: str) -> bool:
    table, _, column = name.partition(".")
    if "/" in name:
        return (ROOT / name).exists()
    return name in VIEWS or (table in TABLES and column in TABLES[table].columns)


def test_there_are_terms_and_none_twice() -> None:
    headings = re.findall(r"^### (.+)$", TEXT, re.M)
    assert len(headings) == len(TERMS) == len({heading.lower() for heading in headings}) >= 40


@pytest.mark.parametrize("term", TERMS)
def test_a_term_has_a_short_meaning_and_lives_somewhere(term: str) -> None:
    meaning, names = places(term)
    assert 1 <= len(re.findall(r"[.?](?=\s|\Z)", meaning)) <= 4, meaning
    assert names, "says nowhere"
    assert "/" in names[0], "the first name is a module, a room or a page"
    modules = [name for name in names if name.endswith(".py")]
    for name in names:
        if is_place(name):
            continue
        # What stands in brackets behind a module is defined in it.
        assert any(re.search(rf"\b{name}\b", (ROOT / module).read_text()) for module in modules), name


def test_a_term_that_moved_is_noticed() -> None:
    assert not is_place("connectors/order/no_such_module.py")
    assert not is_place("occupancy_10s.no_such_column")
    assert is_place("capacity_gain")
    assert is_place("occupancy_10s.trust")
