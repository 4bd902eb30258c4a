from __future__ import annotations

import msgspec

from tests.support.checkout import ROOT
from tests.support.suite.compared import MERGED, Cases, Merge, Merges, compare, lines, matches


def cases(day: str = "", night: str = "") -> Cases:
    return Cases(
        frozenset(f"tests/a.py::{name}" for name in day.split()),
        frozenset(f"tests/a.py::{name}" for name in night.split()),
    )


def test_every_case_has_one_fate() -> None:
    old = cases("stays moves merged[1] merged[2] lost", "late returns")
    new = cases("stays returns new whole", "moves late")
    found = compare(old, new, [Merge("tests/a.py::whole", ["tests/a.py::merged[*]"])])
    assert found.stay == {"tests/a.py::stays", "tests/a.py::late"}
    assert found.to_night == {"tests/a.py::moves"}
    assert found.to_day == {"tests/a.py::returns"}
    assert found.added == {"tests/a.py::new", "tests/a.py::whole"}
    assert found.merged == {"tests/a.py::whole": {"tests/a.py::merged[1]", "tests/a.py::merged[2]"}}
    assert found.gone == {"tests/a.py::lost"}
    assert not found.explained
    assert list(lines(found)) == [
        "2 stay, 1 go to the night, 1 come from it",
        "2 are new, 2 were merged, 1 are gone",
        "to the night:    1 of tests/a.py",
        "merged:    2 of tests/a.py into tests/a.py::whole",
        "GONE: tests/a.py::lost",
    ]


def test_what_cases_were_merged_into_must_exist() -> None:
    found = compare(cases("lost"), cases("other[7]"), [Merge("tests/a.py::gone_too", ["tests/a.py::lost"])])
    assert found.gone == {"tests/a.py::lost"}
    assert found.nowhere == {"tests/a.py::gone_too"}
    for into in ("tests/a.py", "tests/a.py::other", "tests/a.py::other[7]"):
        assert compare(cases("lost"), cases("other[7]"), [Merge(into, ["tests/a.py::lost"])]).explained


def test_a_case_of_the_old_revision_that_is_still_there_is_not_merged() -> None:
    found = compare(cases("here"), cases("here other"), [Merge("tests/a.py::other", ["tests/a.py::*"])])
    assert found.stay == {"tests/a.py::here"}
    assert not found.merged


def test_only_a_star_stands_for_other_text() -> None:
    assert matches("tests/a.py::test[*]", "tests/a.py::test[a-[b]]")
    assert not matches("tests/a.py::test[ab]", "tests/a.py::testa")
    assert not matches("tests/a.py::test", "tests/a.py::test_more")


def test_the_file_of_merges_can_be_read() -> None:
    msgspec.toml.decode((ROOT / MERGED).read_bytes(), type=Merges)
