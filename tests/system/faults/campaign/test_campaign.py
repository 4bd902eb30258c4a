"""A short campaign; `make faults` runs longer ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.processes import environment

SEED, FAULTS = 5046, 4
"""The broker killed; two connectors; a full disk of the store; a worker killed between insert and commit."""
LONGEST_SECONDS = 400.0
"""It takes a minute and a half on a busy machine."""


@pytest.mark.night
def test_no_difference_after_faults(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.system.faults.campaign"]
    try:
        done = subprocess.run(
            [*command, "--seed", str(SEED), "--faults", str(FAULTS), "--directory", str(tmp_path)],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONGEST_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError((error.stdout or b"").decode()[-8000:]) from error
    assert done.returncode == 0, done.stdout[-8000:]
    assert f"{FAULTS} faults done" in done.stdout, done.stdout[-3000:]
    assert "verify after the workers have stopped: " in done.stdout
