"""`make simulate` for three quarters of a minute: a fixed seed, the same every time, and a fresh one."""

from __future__ import annotations

import subprocess
import sys

import pytest

FIXED_SEED = 20_261_128
FIXED_SECONDS, FRESH_SECONDS = 20, 25


def simulate(seed: int, seconds: int) -> None:
    # Apart: what the product reaches the world through is replaced there.
    asked = [sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--seconds", str(seconds)]
    run = subprocess.run(asked, capture_output=True, text=True, timeout=seconds + 90)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "no difference" in run.stdout


def test_fixed_seeds() -> None:
    simulate(FIXED_SEED, FIXED_SECONDS)


def test_fresh_seeds(pytestconfig: pytest.Config) -> None:
    """The seed is in the header of the run."""
    simulate(pytestconfig.getoption("seed"), FRESH_SECONDS)
