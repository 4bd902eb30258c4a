"""What happens in a simulation: a shape and a list of actions, both of which follow from a seed."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass

KINDS: dict[str, float] = {
    "clear": 1.0,
    "lie": 1.0,
    "bite": 0.5,
    "restart": 1.0,
    "again": 0.5,
    "down": 0.5,
    "drop": 2.0,
    "deaf": 1.0,
    "holes": 1.0,
    "kill": 3.0,
    "inserted": 1.0,
    "committed": 1.0,
    "appended": 1.0,
    "freeze": 2.0,
    "stop": 1.0,
    "clock": 1.0,
    "ahead": 0.5,
    "slow": 1.0,
    "store": 1.5,
    "retain": 0.7,
    "compact": 0.7,
    "join": 1.0,
    "leave": 1.0,
    "lose": 0.7,
    "overlap": 0.7,
}
"""What may happen besides prompts, and how often."""

TOGETHER: tuple[tuple[tuple[str, int, float], ...], ...] = (
    (("store", 0, 0.0), ("committed", 1, 0.0)),
    (("inserted", 1, 0.0), ("serve", 0, 0.0), ("serve", 1, 0.0)),
    (("store", 0, 0.0), ("serve", 0, 0.0), ("store", 0, 4.0), ("kill", 1, 3.0)),
    (("kill", 1, 0.0), ("kill", 2, 0.0), ("serve", 0, 0.0), ("serve", 1, 0.0), ("retain", 0, 1.0)),
    (("down", 0, 0.0), ("clock", 0, 0.0), ("clock", 0, 0.0)),
    (("down", 0, 0.0), ("down", 1, 0.0), ("ahead", 0, 2.0), ("ahead", 0, 1.5)),
    (("serve", 0, 0.0), ("serve", 1, 0.0), ("kill", -1, 0.0)),
    (("freeze", 1, 0.0), ("freeze", 2, 0.0), ("join", 0, 0.0)),
    (("lie", 0, 0.0), ("bite", 0, 0.0), ("bite", 0, 0.0), ("serve", 0, 0.0)),
    (("down", 0, 0.0), ("kill", 0, 0.0), ("serve", 0, 0.0)),
    (("serve", 0, 0.0), ("kill", 0, 1.0), ("again", 0, 0.1)),
    (("serve", 1, 0.0), ("kill", 0, 1.0), ("again", 1, 0.1), ("serve", 1, 0.0)),
    (("overlap", 0, 0.0), ("serve", 0, 0.0), ("kill", 0, 1.0), ("serve", 0, 0.0)),
    (("serve", 0, 0.0), ("appended", 0, 0.0), ("serve", 1, 0.0), ("serve", 0, 0.0)),
    (("overlap", 0, 0.0), ("slow", 0, 0.3), ("again", 0, 0.0), ("appended", 1, 0.0), ("kill", 0, 1.0)),
)
"""What tells most when it comes within a few seconds: kinds, whom, and seconds to wait at least. Of processes
0 is a connector, 1 and 2 are the first workers (1 is an overlapping connector, where there is one), -1 is the
index, where there is one."""
OF_PROCESSES = ("kill", "freeze", "inserted", "committed", "appended")
TOGETHER_SECONDS = 4.0
ROOM_SECONDS = 3.0
"""From the last of what comes together until the end."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something that happens."""

    at: float
    """Seconds since the beginning."""
    kind: str
    whom: int
    """Which engine or process, where there are several; counted round."""
    number: int
    """Decides the rest."""

    def __str__(self) -> str:
        return f"{self.at:7.3f} s  {self.kind:<8} {self.whom} #{self.number}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """All that a run depends on."""

    seed: int
    engines: int
    partitions: int
    shards: int
    connectors: int
    workers: int
    indexes: int
    receivers: int
    """Of the engines, the last ones: most of what they have others computed."""
    capacity: int
    """Blocks of an engine."""
    keeps: int
    """Batches that engines keep for replay."""
    prompts: int
    checkpoint_seconds: float
    carry_seconds: float
    """For so long an idle source is carried forward."""
    linger_seconds: float
    seconds: float
    actions: tuple[Action, ...]


def schedule(seed: int, keep: Collection[int] | None = None) -> Schedule:
    """Return the schedule of a seed; `keep`: with these of its actions only, by their number."""
    rng = random.Random(f"schedule {seed}")
    seconds = rng.choice([3.0, 5.0, 8.0, 12.0])
    kinds = [kind for kind in KINDS if rng.random() < 0.4]
    faults = rng.randrange(1, 9) if kinds else 0
    actions = [
        Action(round(rng.random() * seconds, 3), "serve", rng.randrange(6), rng.randrange(10**6))
        for _ in range(rng.randrange(6, 30))
    ]
    weights = [KINDS[kind] for kind in kinds]
    actions += [
        # Beginnings are where much is decided.
        Action(round(rng.random() ** 1.5 * seconds, 3), kind, rng.randrange(6), rng.randrange(10**6))
        for kind in (rng.choices(kinds, weights, k=faults) if kinds else [])
    ]
    connectors = rng.choice([1, 1, 1, 2])
    if rng.random() < 0.6:
        together = [*_together(rng, seconds, connectors)]
        actions += together
        seconds = max(seconds, together[-1].at + ROOM_SECONDS)
    actions.sort(key=lambda action: action.at)
    engines = rng.choice([1, 2, 2, 3])
    return Schedule(
        seed=seed,
        engines=engines,
        partitions=rng.choice([1, 1, 2]),
        shards=rng.choice([1, 1, 2]),
        connectors=connectors,
        workers=rng.choice([1, 1, 2]),
        indexes=rng.choice([0, 0, 1]),
        receivers=rng.choice([0, 1]) if engines > 1 else 0,
        capacity=rng.choice([4, 12, 40]),
        keeps=rng.choice([3, 10, 1000]),
        prompts=rng.choice([2, 4, 12]),
        checkpoint_seconds=rng.choice([2.0, 3.0, 5.0]),
        carry_seconds=rng.choice([10.0, 600.0]),
        linger_seconds=rng.choice([0.8, 1.6, 1.6]),
        seconds=seconds,
        actions=tuple(action for at, action in enumerate(actions) if keep is None or at in keep),
    )


def _together(rng: random.Random, seconds: float, connectors: int) -> Iterator[Action]:
    """Give some of what belongs together, one after the other."""
    at = rng.random() ** 2 * seconds
    for kind, whom, wait in rng.choice(TOGETHER):
        is_worker = kind in OF_PROCESSES and whom > 0
        at += wait
        yield Action(round(at, 3), kind, connectors - 1 + whom if is_worker else whom, rng.randrange(10**6))
        at += rng.random() ** 2 * TOGETHER_SECONDS
