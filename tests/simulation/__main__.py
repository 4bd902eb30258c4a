"""`make simulate`: schedules from a seed on, until one fails; the failing one is printed, shortened."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import secrets
import sys
import time
from collections.abc import Iterator

from tests.simulation.kept import failed
from tests.simulation.run import Runner, runner, told
from tests.simulation.schedule import schedule
from tests.support.suite.compiled import PARTS


def main() -> int:
    """Return 1 if a schedule failed."""
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the first schedule; a fresh one by default")
    parser.add_argument("--schedules", type=int, help="how many; without --seconds 1000")
    parser.add_argument("--seconds", type=float, help="how long at most")
    parser.add_argument(
        "--keep", help="numbers of the actions of one schedule that are left, as printed; or none"
    )
    parser.add_argument("--kept", action="store_true", help="those that showed a fault once, instead")
    asked = parser.parse_args()
    if "PYTHONHASHSEED" not in os.environ:
        # What sets of texts give first follows from it, and so would what happens.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {"PYTHONHASHSEED": "0"})
    seed = secrets.randbelow(10**9) if asked.seed is None else asked.seed
    for compile_part in PARTS:
        compile_part()
    with runner() as run:
        if asked.kept:
            differ = [*failed(run)]
            print(*(differ or ["no difference"]), sep="\n")
            return bool(differ)
        if asked.keep is not None:
            keep = [] if asked.keep == "none" else [int(number) for number in asked.keep.split(",")]
            outcome = run.run(schedule(seed, keep))
            print(*(told(keep, outcome) if outcome.differences else ["no difference"]), sep="\n")
            return bool(outcome.differences)
        seconds = math.inf if asked.seconds is None else asked.seconds
        most = asked.schedules or (1000 if asked.seconds is None else None)
        seeds = itertools.count(seed) if most is None else iter(range(seed, seed + most))
        return _many(run, seed, seeds, seconds)


def _many(run: Runner, seed: int, seeds: Iterator[int], seconds: float) -> int:
    print(f"simulating from seed {seed} on", flush=True)
    began, worked, count, steps = time.monotonic(), time.process_time(), 0, 0
    for outcome in run.many(seeds, seconds):
        count += 1
        steps += outcome.steps
        if outcome.differences:
            print(f"after {count} schedules and {time.monotonic() - began:.1f} s", flush=True)
            print(*told(*run.shortened(outcome)), sep="\n")
            return 1
    rate = 60 * count / max(time.process_time() - worked, 1e-9)
    print(
        f"{count} schedules, {steps} awaits, no difference; {time.monotonic() - began:.1f} s, "
        f"{rate:.0f} schedules a minute of one core's time"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
