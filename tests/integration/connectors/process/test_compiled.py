"""Machine code that is kept is compiled anew when anything that it is made of changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.suite.night import at_night

_CALLED = """
import numpy as np
from connectors.process.compiled import inner
FACTOR = {factor}
TABLE = np.array([{first}, 7])

@inner
def called(x):
    return x * FACTOR + TABLE[0]{more}
"""
_CALLER = """
from connectors.process.compiled import DECORATOR as compiled
from called import called

@compiled
def caller(x):
    return called(x)

print(caller(10))
"""


def printed(directory: Path, called: str) -> int:
    (directory / "called.py").write_text(called)
    environment = {
        "PYTHONPATH": f"{directory}:.",
        "NUMBA_CACHE_DIR": str(directory / "kept"),
        # Python would take two files of a second and a size for one.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, str(directory / "caller.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=True)
    return int(done.stdout)


@pytest.mark.parametrize("decorator", at_night(["compiled", "compiled_nogil"]))
def test_a_change_of_what_is_called_is_a_change(tmp_path: Path, decorator: str) -> None:
    (tmp_path / "caller.py").write_text(_CALLER.replace("DECORATOR", decorator))
    assert printed(tmp_path, _CALLED.format(factor=2, first=1, more="")) == 21
    kept = set(tmp_path.glob("kept/**/*.nbi"))
    assert printed(tmp_path, _CALLED.format(factor=2, first=1, more="")) == 21
    assert kept == set(tmp_path.glob("kept/**/*.nbi")) != set()
    assert printed(tmp_path, _CALLED.format(factor=2, first=1, more=" + 100")) == 121
    assert printed(tmp_path, _CALLED.format(factor=3, first=1, more="")) == 31
    assert printed(tmp_path, _CALLED.format(factor=2, first=4, more="")) == 24


def test_each_process_keeps_or_releases_the_interpreters_lock_as_its_threads_need_it() -> None:
    from connectors.normalise.scanner.payloads import transcode
    from connectors.receive.compiled_receiver import _take
    from pipeline.fleet.kernel import tables
    from pipeline.residency.counting import block_counting, block_entries

    assert _releases_lock(transcode)
    assert _releases_lock(_take)
    for module in (tables, block_entries, block_counting):
        functions = [value for value in vars(module).values() if hasattr(value, "targetoptions")]
        assert functions
        # Large tables are moved in a thread, while nothing is applied.
        releasing = {function.__name__ for function in functions if _releases_lock(function)}
        assert releasing == ({"copy_blocks", "copy_pairs"} if module is tables else set())


def _releases_lock(function: Any) -> bool:
    return bool(function.targetoptions.get("nogil"))
