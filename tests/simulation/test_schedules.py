"""`make simulate` with a fixed seed, which tells the same every time; by night with a fresh one, too.

By day it is so many schedules as take about 20 s of a core, whatever else the machine does: all tests
together have six minutes of two.
"""

from __future__ import annotations

import pytest

from tests.simulation.forked import simulated

FIXED_SEED, FIXED_SCHEDULES, AT_ONCE = 20_261_128, 200, 50
FRESH_SECONDS = 45


def simulate(*limits: str) -> None:
    # Apart: what the product reaches the world through is replaced there.
    run = simulated(*limits)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "no difference" in run.stdout


@pytest.mark.parametrize("first", range(FIXED_SEED, FIXED_SEED + FIXED_SCHEDULES, AT_ONCE))
def test_fixed_seeds(first: int) -> None:
    """Some at a time, as a case that takes two minutes on a busy machine counts as one that hangs."""
    simulate("--seed", str(first), "--schedules", str(AT_ONCE))


def test_kept_schedules() -> None:
    """That showed a fault once."""
    simulate("--kept")


@pytest.mark.night
def test_fresh_seeds(pytestconfig: pytest.Config) -> None:
    """The seed is in the header of the run."""
    simulate("--seed", str(pytestconfig.getoption("seed")), "--seconds", str(FRESH_SECONDS))
