"""A night goes on where it was interrupted, on the same files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.suite import whole_night
from tests.support.suite.changed import is_below
from tests.support.suite.whole_night import CASES, NO_TESTS, ROOMS, Part, kept_here, night, notes_of, parts


class Runs:
    """Notes what is run; what is said to fails, or is interrupted."""

    def __init__(self, *, codes: Mapping[str, int] | None = None, interrupted: str = "") -> None:
        self.ran: list[str] = []
        self._codes, self._interrupted = codes or {}, interrupted

    def __call__(self, command: Sequence[str]) -> int:
        self.ran += command
        if command[0] == self._interrupted:
            raise KeyboardInterrupt
        return self._codes.get(command[0], 0)


def three(directory: Path | None) -> dict[str, Part]:
    return {
        name: Part([name], None if directory is None else directory / name, by_case=name == "two")
        for name in ("one", "two", "three")
    }


def test_what_passed_before_an_interruption_does_not_run_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        night(three(tmp_path / "night"), Runs(interrupted="two"))
    again = Runs(codes={"two": 1})
    passed, failed = night(three(tmp_path / "night"), again)
    assert (again.ran, passed.keys(), failed) == (["two", "three"], {"one", "three"}, ["two"])
    last = Runs(codes={"two": NO_TESTS})
    assert night(three(tmp_path / "night"), last)[1] == [], "all its cases had passed before"
    assert last.ran == ["two"]


def test_where_nothing_is_kept_everything_runs_and_no_tests_are_a_failure() -> None:
    for _ in range(2):
        run = Runs(codes={"two": NO_TESTS})
        assert night(three(None), run)[1] == ["two"]
        assert run.ran == ["one", "two", "three"]


def test_the_night_after_one_that_passed_is_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "night"
    run = Runs(interrupted="three")
    monkeypatch.setattr(whole_night, "KEPT", kept)
    monkeypatch.setattr(whole_night, "kept_here", dict)
    monkeypatch.setattr(whole_night, "parts", lambda arguments, notes: three(kept))
    monkeypatch.setattr(subprocess, "call", lambda command, cwd: run(command))
    assert (whole_night.main(), run.ran) == (130, ["one", "two", "three"])
    assert kept.exists()
    run = Runs()
    assert (whole_night.main(), run.ran) == (0, ["three"])
    assert not kept.exists()


FILES = {
    "pipeline/a.py": "1",
    "tests/conftest.py": "2",
    "tests/unit/test_a.py": "3",
    "tests/simulation/play.py": "4",
    "tests/system/faults/campaign/plan.py": "5",
}
TEXTS = {"tests/unit/test_a.py": "from tests.system.faults.campaign import plan"}


def differ(changed: str, texts: Mapping[str, str] = TEXTS) -> set[str]:
    """The rooms that have to run again when a file has changed."""

    def notes(files: Mapping[str, str]) -> dict[str, Path]:
        return notes_of(files, Path(), lambda path: texts.get(path, ""))

    before, after = notes(FILES), notes({**FILES, changed: "changed"})
    return {room for room in before if before[room] != after[room]}


def test_a_change_to_the_product_or_to_what_all_tests_share_is_one_to_all_rooms() -> None:
    everything = {*CASES, "tests/fuzz"}
    assert differ("pipeline/a.py") == differ("tests/conftest.py") == everything
    shared = {"tests/conftest.py": "import tests.simulation.play"}
    assert differ("tests/simulation/play.py", shared) == everything


def test_a_change_to_the_tests_of_a_room_is_one_to_it_and_to_who_imports_it() -> None:
    assert differ("tests/simulation/play.py") == {"tests/simulation"}
    assert differ("tests/system/faults/campaign/plan.py") == {"tests/system/faults", "tests/unit"}


def test_each_part_has_notes_of_its_own(tmp_path: Path) -> None:
    named = parts(["-n", "2"], notes_of(FILES, tmp_path, lambda path: ""))
    assert [*named] == [*CASES, "faults", "fuzz", "simulate"]
    assert len({part.notes for part in named.values()}) == len(named)
    assert all(part.notes is None for part in parts([], {}).values())
    assert kept_here().keys() in (set(), ROOMS)


def test_each_test_is_of_one_part() -> None:
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    assert {path: sum(is_below(path, part) for part in CASES) for path in files} == dict.fromkeys(files, 1)


def test_cases_that_passed_are_left_out_the_next_time(tmp_path: Path) -> None:
    rooms = tmp_path / "rooms"
    rooms.mkdir()
    for name in ("a", "b"):
        (rooms / f"test_{name}.py").write_text(
            f"import pathlib\n\ndef test_fine(): pass\n\n"
            f"def test_mended(): assert pathlib.Path({str(tmp_path)!r}, 'mended').exists()\n"
        )
    how = ["-p", "tests.conftest", f"--resume={tmp_path / 'notes'}", "-n", "2", "--dist", "loadfile"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        f"--rootdir={rooms}",
        "-c",
        "/dev/null",
        *how,
        str(rooms),
    ]

    def said() -> str:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()[-1]

    assert "2 failed, 2 passed" in said()
    assert "2 failed in" in said()
    (tmp_path / "mended").touch()
    assert "2 passed" in said()
    assert len((tmp_path / "notes").read_text().splitlines()) == 4
