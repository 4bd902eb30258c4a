"""A run in parallel: cases chosen in files that are handed out, a hang, a file that cannot be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.night

FILES = {
    "test_chosen.py": """
import pytest

@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.night)])
def test_seed(seed): assert seed == 1

def test_names(): pass

def test_differs(): assert 1 == 2
""",
    "test_hanging.py": """
import time

def test_before(): pass

def test_hangs(): time.sleep(3600)

def test_after(): pass
""",
    "test_broken.py": "import nothing_of_this_name",
    "test_by_night.py": """
import pytest

pytestmark = pytest.mark.night

def test_fails(): assert False
""",
}


def outcome(files: dict[str, str], directory: Path, *arguments: str, passes: bool = True) -> str:
    for name, content in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(content)
    command = [
        *(
            sys.executable,
            "-m",
            "tests.support.suite.run",
            "-c",
            "pyproject.toml",
            "--rootdir",
            str(ROOT),
            "-p",
            "tests.conftest",
            "-n",
            "2",
        )
    ]
    done = subprocess.run(
        [
            *(*command, "--dist", "loadfile", "--no-loadscope-reorder", "-p", "no:cacheprovider"),
            *("-m", "not night", "-o", "faulthandler_timeout=2", *arguments),
        ],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == (not passes), done.stdout
    return done.stdout


def test_each_file_runs_once_and_everything_that_is_wrong_is_named(tmp_path: Path) -> None:
    said = outcome(FILES, tmp_path, str(tmp_path), passes=False)
    assert "crashed while running" in said
    failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    for name in ("test_hanging.py::test_hangs", "test_chosen.py::test_differs", "test_broken.py"):
        assert sum(name in line for line in failed) == 1, said
    # Of the file that hung what came before is known, and nothing after it.
    assert said.splitlines()[-1].strip("= ").startswith("2 failed, 3 passed, 1 error in "), said


@pytest.mark.parametrize(("before", "others"), [(0, 1), (0, 2), (0, 3), (0, 8), (6, 8), (8, 8)])
def test_what_a_dead_process_had_not_begun_is_run(tmp_path: Path, before: int, others: int) -> None:
    """Whether or not it had done some files `before`."""
    files = {f"test_{number}.py": "def test_it(): pass" for number in range(1, 2 + others)}
    files[f"test_{1 + before}.py"] = FILES["test_hanging.py"]
    said = outcome(files, tmp_path, str(tmp_path), passes=False)
    assert "died while running" in said
    assert f"test_{1 + before}.py::test_hangs" in said
    assert said.splitlines()[-1].strip("= ").startswith(f"1 failed, {1 + others} passed in "), said


def test_cases_are_chosen_by_name(tmp_path: Path) -> None:
    said = outcome(FILES, tmp_path, str(tmp_path / "test_chosen.py"), "-k", "differs or names", passes=False)
    assert said.splitlines()[-1].strip("= ").startswith("1 failed, 1 passed in "), said
    said = outcome(FILES, tmp_path, f"{tmp_path / 'test_chosen.py'}::test_differs", passes=False)
    assert said.splitlines()[-1].strip("= ").startswith("1 failed in "), said


def test_files_of_which_nothing_is_chosen_stand_between_others(tmp_path: Path) -> None:
    by_day, by_night = "def test_it(): pass", FILES["test_by_night.py"]
    files = {"a/test_1.py": by_day, "a/test_2.py": by_night, "b/test_3.py": by_night, "b/test_4.py": by_day}
    said = outcome(files, tmp_path, str(tmp_path), "-n", "1")
    assert said.splitlines()[-1].strip("= ").startswith("2 passed in "), said
