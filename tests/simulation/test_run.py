"""A seed is all that a run depends on, and a fault that is planted is found and shortened."""

from __future__ import annotations

import subprocess
import sys

from tests.simulation.forked import simulated
from tests.simulation.schedule import schedule

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
    """Return what a process of its own says, whose memory lies elsewhere."""
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
    runs = [_anew("--seed", "5", "--schedules", "4").split("awaits")[0] for _ in range(2)]
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
