"""Runs schedules: one, many, and ever fewer actions of one that fails."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from tests.simulation import edges, judge
from tests.simulation.loop import Restless
from tests.simulation.play import Play
from tests.simulation.schedule import Schedule, schedule
from tests.simulation.simulation import Simulation

_COLLECTED_EVERY = 20
MOST_TRIES = 80
"""Runs that shortening a schedule takes at most."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a schedule."""

    schedule: Schedule
    differences: tuple[str, ...]
    steps: int
    """Callbacks that ran: as many awaits at which something could have happened."""


class Runner:
    """Runs schedules one after the other; made by `runner`."""

    def __init__(self, use: Callable[[Simulation | None], None]) -> None:
        self._use = use
        self._runs = 0

    def run(self, schedule: Schedule) -> Outcome:
        """Play a schedule and judge what is left."""
        play, found = self.played(schedule)
        return Outcome(schedule, tuple(found), play.simulation.steps)

    def played(self, schedule: Schedule) -> tuple[Play, list[str]]:
        """Return the same as it is at the end, and what differs."""
        play = Play(schedule)
        self._use(play.simulation)
        try:
            unrest = play.run()
            found = [*([] if unrest is None else [unrest]), *judge.differences(play)]
        except Restless as restless:
            found = [str(restless)]
        self._runs += 1
        if not self._runs % _COLLECTED_EVERY:
            gc.collect()
        return play, found

    def many(
        self, seeds: Iterator[int], seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> Iterator[Outcome]:
        """Give the outcomes of the schedules of some seeds, as far as they begin within so many seconds."""
        until = clock() + seconds
        for seed in seeds:
            if clock() >= until:
                return
            yield self.run(schedule(seed))

    def shortened(self, failed: Outcome) -> tuple[list[int], Outcome]:
        """Return the numbers of the actions, as few as were found, with which it still fails, and how."""
        seed, tries = failed.schedule.seed, MOST_TRIES
        kept, outcome = [*range(len(failed.schedule.actions))], failed
        size = max(1, len(kept) // 2)
        while tries and kept:
            at, shorter = 0, False
            while at < len(kept) and tries:
                fewer = kept[:at] + kept[at + size :]
                tries -= 1
                tried = self.run(schedule(seed, fewer))
                if tried.differences:
                    kept, outcome, shorter = fewer, tried, True
                else:
                    at += size
            if size == 1 and not shorter:
                break
            size = max(1, size // 2)
        return kept, outcome


@contextmanager
def runner() -> Iterator[Runner]:
    """Give what runs schedules, in silence and without the collector in between."""
    silent = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    disabled, hook = logging.root.manager.disable, sys.unraisablehook
    logging.disable(logging.CRITICAL)
    # Killed processes are let go with coroutines in the middle of things, some of which complain. What others
    # begin then must find no loop: one of the thread's own would keep it for ever, and the whole run with it.
    sys.unraisablehook = lambda unraisable: None
    asyncio.set_event_loop(None)
    collects = gc.isenabled()
    gc.disable()
    gc.collect()
    gc.freeze()
    try:
        with edges.installed() as use, warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield Runner(use)
            use(None)
            gc.collect()
    finally:
        gc.unfreeze()
        if collects:
            gc.enable()
        sys.unraisablehook = hook
        logging.disable(disabled)
        structlog.configure(**silent)


def told(kept: Sequence[int], outcome: Outcome) -> Iterator[str]:
    """Give the lines that say what a shortened schedule does, and how to run it again."""
    plan = outcome.schedule
    yield f"seed {plan.seed} fails:"
    yield from (f"  {difference[:1000]}" for difference in outcome.differences[:5])
    yield (
        f"its schedule, shortened: engines={plan.engines} partitions={plan.partitions} shards={plan.shards} "
        f"connectors={plan.connectors} workers={plan.workers} indexes={plan.indexes} "
        f"receivers={plan.receivers} keeps={plan.keeps} "
        f"checkpoint_seconds={plan.checkpoint_seconds:g} seconds={plan.seconds:g}"
    )
    yield from (f"  {action}" for action in plan.actions)
    keep = ",".join(map(str, kept)) or "none"
    yield f'run it again: make simulate ARGS="--seed {plan.seed} --keep {keep}"'
