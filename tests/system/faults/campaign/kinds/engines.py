"""Engines that end and come back, lose what they publish, or answer replays as they should not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from tests.system.faults.campaign.engines.replays import Mood
from tests.system.faults.campaign.site import Site, Strike

_DROPPED = 25
"""Batches that a connector has to ask for."""


@contextmanager
def dies(site: Site, rng: random.Random) -> Iterator[str]:
    """An engine's process ends and comes back with a new life."""
    engine = site.engine(rng)
    site.silent.add(engine.name)
    site.traffic.do(engine.die)
    try:
        yield engine.name
    finally:
        site.traffic.do(engine.rise)
        site.silent.discard(engine.name)


@contextmanager
def all_restart(site: Site, rng: random.Random) -> Iterator[str]:
    """Every engine begins a new life at once."""

    def restart() -> None:
        for engine in site.engines:
            engine.restart()

    site.traffic.do(restart)
    yield "all engines"


@contextmanager
def network_loses(site: Site, rng: random.Random) -> Iterator[str]:
    """Some batches of every engine are lost on the way."""

    def drop() -> None:
        for engine in site.engines:
            engine.drop(rng.randint(1, 60))

    site.traffic.do(drop)
    yield "all engines"


def replays(mood: Mood) -> Strike:
    """Return the fault in which an engine's replays are so; it ends with an honest new life."""

    @contextmanager
    def strike(site: Site, rng: random.Random) -> Iterator[str]:
        engine = rng.choice(site.liars)

        def begin() -> None:
            engine.feel(mood)
            engine.drop(_DROPPED)

        def end() -> None:
            engine.feel("honest")
            engine.restart()

        site.traffic.do(begin)
        try:
            yield engine.name
        finally:
            site.traffic.do(end)

    return strike
