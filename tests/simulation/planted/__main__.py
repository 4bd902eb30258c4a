"""Plants faults one at a time and says after how many seconds of a core the simulator finds each.

A schedule that fails without the fault as well shows nothing.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import re
import subprocess
import sys
import time

from tests.simulation.planted.faults import FAULTS
from tests.simulation.schedule import schedule
from tests.support.suite.compiled import PARTS

_SEED = re.compile(r"seed (\d+):")


def main() -> int:
    """Return 1 if a fault was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted", description=__doc__)
    parser.add_argument("faults", nargs="*", help="names; all by default")
    parser.add_argument("--seed", type=int, default=1, help="of the first schedule")
    parser.add_argument("--schedules", type=int, default=1000, help="for each: what a core has in a minute")
    parser.add_argument("--within", action="store_true", help="plant the fault and simulate, in this process")
    asked = parser.parse_args()
    if asked.within:
        return _simulate(asked.faults[0], asked.seed, asked.schedules)
    missed = 0
    print(f"{'fault':<54} {'room':<22} found")
    for name in asked.faults or FAULTS:
        options = ["--within", "--seed", str(asked.seed), "--schedules", str(asked.schedules)]
        run = subprocess.run(
            [sys.executable, "-m", "tests.simulation.planted", name, *options],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONHASHSEED": "0"},
        )
        found = run.returncode == 1
        said = run.stdout.strip() or run.stderr.strip()[-200:]
        if found and (seed := _SEED.search(said)) is not None and _differs(seed[1]):
            found, said = False, f"seed {seed[1]} differs without it as well"
        missed += not found
        print(f"{name:<54} {FAULTS[name].room:<22} {said}", flush=True)
    return missed > 0


def _differs(seed: str) -> bool:
    """Tell whether a schedule fails though nothing was planted."""
    options = [
        "--seed",
        seed,
        "--keep",
        ",".join(map(str, range(len(schedule(int(seed)).actions)))) or "none",
    ]
    run = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *options],
        capture_output=True,
        env=os.environ | {"PYTHONHASHSEED": "0"},
    )
    return run.returncode != 0


def _kinds(seed: int) -> list[str]:
    return [action.kind for action in schedule(seed).actions]


def _simulate(name: str, seed: int, schedules: int) -> int:
    fault = FAULTS[name]
    fault.plant()
    from tests.simulation.run import runner

    for compile_part in PARTS:
        compile_part()
    began = time.process_time()
    seeds = (one for one in itertools.count(seed) if fault.needs in ("", *_kinds(one)))
    with runner() as run:
        for number, outcome in enumerate(run.many(itertools.islice(seeds, schedules), math.inf), 1):
            if outcome.differences:
                after = time.process_time() - began
                found = f"{number} schedules, seed {outcome.schedule.seed}"
                print(f"{after:4.1f} s, {found}: {outcome.differences[0][:60]}")
                return 1
    print("not found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
