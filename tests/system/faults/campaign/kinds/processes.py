"""kill -9 and SIGSTOP of every process; with a worker, sometimes another one that takes over."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tests.system.faults.campaign.site import Site, Strike
from tests.system.faults.campaign.surroundings.part import Part


def killed(name: str) -> Strike:
    """Return the fault that kills a part, which stays away while it holds."""

    @contextmanager
    def strike(site: Site, rng: random.Random) -> Iterator[str]:
        part = _part(site, rng, name)
        part.kill_and_hold()
        try:
            yield part.name
        finally:
            part.release()

    return strike


def frozen(name: str) -> Strike:
    """Return the fault that stops a part by SIGSTOP while it holds."""

    @contextmanager
    def strike(site: Site, rng: random.Random) -> Iterator[str]:
        part = _part(site, rng, name)
        part.signal(signal.SIGSTOP)
        try:
            yield part.name
        finally:
            part.signal(signal.SIGCONT)

    return strike


@contextmanager
def frozen_with_successor(site: Site, rng: random.Random) -> Iterator[str]:
    """A worker is frozen, another one takes its partitions, and the first wakes up."""
    worker = site.worker(rng)
    other = rng.choice([one for one in site.installation.workers if one is not worker])
    added = not other.wanted
    other.release()
    worker.signal(signal.SIGSTOP)
    try:
        yield f"{worker.name}, {other.name} takes over"
    finally:
        worker.signal(signal.SIGCONT)
        if added:
            other.stop_and_hold()


def _part(site: Site, rng: random.Random, name: str) -> Part:
    installation = site.installation
    if name == "worker":
        return site.worker(rng)
    if name == "connector":
        return installation.connectors[0]
    return installation.broker if name == "broker" else installation.store
