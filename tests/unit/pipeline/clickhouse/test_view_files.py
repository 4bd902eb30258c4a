"""Views are made after those that they ask, and again when one of these, or the tables, changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline.clickhouse.sql_files import DIRECTORY, VIEWS
from pipeline.clickhouse.view_files import in_order, removed, views

A = "CREATE VIEW {database}.a AS SELECT * FROM {database}.t FINAL"
B = "CREATE VIEW {database}.b AS SELECT * FROM {database}.a"
C = "CREATE VIEW {database}.c AS SELECT 1"


def digests(**texts: str) -> dict[str, str]:
    return {view.name: view.sha256 for view in in_order(texts, texts.pop("tables", ""))}


def test_what_is_asked_comes_first() -> None:
    assert [view.name for view in in_order({"b": B, "c": C, "a": A}, "")] == ["a", "c", "b"]
    made = [view.name for view in views()]
    assert len(made) == len(set(made)) > 80
    for number, view in enumerate(views()):
        assert not [name for name in made[number + 1 :] if f"{{database}}.{name}(" in view.text]


def test_what_asks_a_changed_view_is_made_again_too_and_nothing_else() -> None:
    before, after = digests(a=A, b=B, c=C), digests(a=A + " WHERE x", b=B, c=C)
    assert {name for name in before if before[name] != after[name]} == {"a", "b"}


def test_other_tables_make_all_views_again() -> None:
    before, after = digests(a=A, c=C), digests(a=A, c=C, tables="more columns")
    assert not set(before.values()) & set(after.values())


def test_a_view_without_a_file_is_gone() -> None:
    assert removed(["0001_a.sql", "views/a", "views/b"], in_order({"a": A}, "")) == ["b"]


def test_views_that_ask_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="cycle"):
        in_order({"a": A.replace(".t", ".b"), "b": B}, "")


@pytest.mark.parametrize("path", sorted((DIRECTORY / VIEWS).glob("*.sql")), ids=lambda path: path.stem)
def test_a_file_makes_the_views_of_its_name(path: Path) -> None:
    made = re.findall(r"^CREATE VIEW \{database\}\.(\w+) AS$", path.read_text("utf-8"), re.M)
    assert made
    assert {name for name in made if not name.startswith(path.stem)} == set()
