"""Which tests run for which changed paths."""

from __future__ import annotations

import pytest

from pipeline.generated.pages.changing import Change, load_changes
from tests.support.checkout import ROOT
from tests.support.suite.changed import ELSEWHERE, targets

ROWS = [
    Change(
        "a page", "`pipeline/page`, its `static/panels` draw", ["tests/system/browser", "tests/fleet/x.py"]
    ),
    Change("a panel", "`pipeline/page/panels.py`", ["tests/system/browser/test_charts.py"]),
    Change("a lock", "the lock", ["tests/unit/deploy"], paths=["deploy/locks"]),
]
HERE = {
    "tests/system/browser",
    "tests/system/browser/test_charts.py",
    "tests/fleet/x.py",
    "tests/unit/deploy",
    "tests/unit/connectors",
    "tests/unit/connectors/order",
    "tests/integration/connectors/order",
    "tests/unit/connectors/order/test_ranks.py",
    "tests/integration/connectors/test_new.py",
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("pipeline/page/head.html", ["tests/system/browser"]),
        ("pipeline/page/panels.py", ["tests/system/browser"]),
        ("pipeline/pages.py", []),
        ("deploy/locks/dev.txt", ["tests/unit/deploy"]),
        ("connectors/order/ranks.py", ["tests/integration/connectors/order", "tests/unit/connectors/order"]),
        (
            "connectors/order/deep/it.py",
            ["tests/integration/connectors/order", "tests/unit/connectors/order"],
        ),
        ("connectors/new/it.py", []),
        ("tests/unit/connectors/order/test_ranks.py", ["tests/unit/connectors/order/test_ranks.py"]),
        ("tests/unit/connectors/order/test_gone.py", []),
        ("static/panels/it.js", ["tests/system/browser"]),
    ],
)
def test_one_path(path: str, expected: list[str]) -> None:
    assert targets([path], ROWS, HERE.__contains__) == (expected, [] if expected else [path])


def test_what_lies_in_another_target_is_not_named_again() -> None:
    paths = ["connectors/order/ranks.py", "tests/unit/connectors/order/test_ranks.py"]
    chosen, unknown = targets(paths, ROWS, HERE.__contains__)
    assert chosen == ["tests/integration/connectors/order", "tests/unit/connectors/order"]
    assert unknown == []


def test_every_row_names_tests_that_are_there_and_a_place() -> None:
    rows = load_changes()
    assert len(rows) > 40
    for row in rows:
        assert [test for test in row.run if not (ROOT / test).exists()] == [], row.change
        assert any((ROOT / place).exists() for place in row.places), row.change
        assert not any(test.startswith(ELSEWHERE) for test in row.run), row.change


def test_files_that_a_row_names_are_there() -> None:
    """From the root, or from a directory that it names, also by a file in it."""
    for row in load_changes():
        there = [ROOT / place for place in row.places if (ROOT / place).exists()]
        rooms = [ROOT, *(place if place.is_dir() else place.parent for place in there)]
        files = [place for place in row.places if "/" in place or place.endswith(".py")]
        missing = [file for file in files if not any((room / file).exists() for room in rooms)]
        assert missing == [], row.change
