"""`make simulate`: fixed seeds by day, fresh ones by night; a planted fault is found and shortened.

By day it is so many schedules as take some seconds of a core, whatever else the machine does: all tests
together have six minutes of two. All are in one file, because loading what is compiled takes as long again.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.simulation.forked import simulated
from tests.simulation.schedule import schedule
from tests.support.suite.night import first_by_day

FIXED_SEED, FIXED_SCHEDULES, AT_ONCE = 20_261_128, 200, 50
FRESH_SECONDS = 45

FAULTY = """
import pipeline.worker.checkpoint.log as log
before = log.CheckpointLog._transaction
async def loses_records(self, producer, next_offset, records):
    await before(self, producer, next_offset, [])
log.CheckpointLog._transaction = loses_records
import sys
from tests.simulation.__main__ import main
sys.exit(main())
"""
"""A worker that commits offsets, and of records nothing."""


def _anew(*arguments: str) -> str:
    """Return what a process says that no other was forked for: its memory lies elsewhere."""
    asked = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.check_output(asked, text=True, timeout=110, env={"PYTHONHASHSEED": "0"})


def test_a_schedule_follows_from_its_seed() -> None:
    assert schedule(7) == schedule(7)
    assert schedule(7) != schedule(8)


def test_some_actions_can_be_left_out() -> None:
    whole, some = schedule(7), schedule(7, [0, 2])
    assert some.actions == (whole.actions[0], whole.actions[2])
    assert (some.engines, some.seconds) == (whole.engines, whole.seconds)


def test_the_same_seed_makes_the_same_run() -> None:
    asked = "--seed", "5", "--schedules", "4"
    runs = [said.split("awaits")[0] for said in (simulated(*asked).stdout, _anew(*asked))]
    assert runs[0] == runs[1]
    assert "4 schedules" in runs[0]


def test_a_fault_is_found_and_its_schedule_printed_shortened_and_to_be_run_again() -> None:
    found = simulated("--seed", "1", "--schedules", "50", program=FAULTY)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "fails:" in found.stdout
    assert "recount: " in found.stdout or "not committed" in found.stdout
    shortened = found.stdout.split("its schedule, shortened")[1]
    *actions, again = shortened.strip().splitlines()[1:]
    assert len(actions) <= 4
    arguments = again.split('ARGS="')[1].rstrip('"').split()
    assert simulated(*arguments, program=FAULTY).returncode == 1
    assert "no difference" in simulated(*arguments).stdout


def simulate(*limits: str) -> None:
    # Apart: what the product reaches the world through is replaced there.
    run = simulated(*limits)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "no difference" in run.stdout


@pytest.mark.parametrize("first", first_by_day(range(FIXED_SEED, FIXED_SEED + FIXED_SCHEDULES, AT_ONCE)))
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
