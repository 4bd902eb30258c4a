"""A night goes on where it was interrupted, on the same files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.suite.changed import ELSEWHERE, is_below
from tests.support.suite.whole_night import CASES, commands, kept, night

PARTS = {"one": ["1"], "two": ["2"], "three": ["3"]}


class Runs:
    """Notes what is run; what is said to fails, or is interrupted."""

    def __init__(self, *, failing: Sequence[str] = (), interrupted: str = "") -> None:
        self.ran: list[str] = []
        self._failing, self._interrupted = failing, interrupted

    def __call__(self, command: Sequence[str]) -> int:
        self.ran += command
        if command[0] == self._interrupted:
            raise KeyboardInterrupt
        return int(command[0] in self._failing)


def test_what_passed_before_an_interruption_does_not_run_again(tmp_path: Path) -> None:
    path = tmp_path / "build" / "night.json"
    with pytest.raises(KeyboardInterrupt):
        night(PARTS, "a", Runs(interrupted="2"), path)
    assert kept("a", path).keys() == {"one"}
    assert kept("b", path) == kept(None, path) == {}
    again = Runs(failing=["2"])
    passed, failed = night(PARTS, "a", again, path)
    assert (again.ran, passed.keys(), failed) == (["2", "3"], {"one", "three"}, ["two"])
    last = Runs()
    assert night(PARTS, "a", last, path)[1] == []
    assert last.ran == ["2"]
    assert not path.exists(), "the next night is a whole one"


def test_other_files_and_changed_ones_run_whole(tmp_path: Path) -> None:
    path = tmp_path / "night.json"
    path.write_text(json.dumps({"tree": "a", "passed": {"one": 5.0}}))
    for tree in ("b", None):
        run = Runs(failing=["1"])
        night(PARTS, tree, run, path)
        assert run.ran == ["1", "2", "3"]
    assert kept("b", path).keys() == {"two", "three"}


def test_each_test_is_of_one_part() -> None:
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    parts = [*CASES, ELSEWHERE]
    assert {path: sum(is_below(path, part) for part in parts) for path in files} == dict.fromkeys(files, 1)
    assert [*commands(["-x"])][-4:] == ["faults", "fuzz", "simulate", "test-fleet"]
