"""Workers that join and leave; a second connector on the same engines."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from tests.system.faults.campaign.site import Site

_ASSIGNED = "partitions assigned"
_JOIN_SECONDS = 120.0


@contextmanager
def one_joins(site: Site, rng: random.Random) -> Iterator[str]:
    """A worker joins and leaves in order."""
    with _joined(site, rng, 1) as names:
        yield names


@contextmanager
def two_join(site: Site, rng: random.Random) -> Iterator[str]:
    """Two workers join; one is killed, the other leaves in order."""
    with _joined(site, rng, 2) as names:
        yield names


@contextmanager
def moves(site: Site, rng: random.Random) -> Iterator[str]:
    """A worker joins, and the one that was there leaves in order."""
    workers = site.installation.running_workers
    added = [one for one in site.installation.workers if one not in workers]
    if not workers or not added:
        yield "nothing: no place for another worker"
        return
    new, old = added[0], rng.choice(workers)
    mark = new.mark()
    new.release()
    new.wait_said(_ASSIGNED, mark, _JOIN_SECONDS)
    old.stop_and_hold()
    yield f"{old.name} leaves to {new.name}"


@contextmanager
def two_connectors(site: Site, rng: random.Random) -> Iterator[str]:
    """A second connector reads the same engines; as the docs say, it stops and the first one restarts."""
    first, second = site.installation.connectors
    mark = second.mark()
    second.release()
    second.wait_said("connector_started", mark, _JOIN_SECONDS)
    try:
        yield second.name
    finally:
        second.stop_and_hold()
        first.stop_and_hold()
        first.release()


@contextmanager
def _joined(site: Site, rng: random.Random, most: int) -> Iterator[str]:
    added = [one for one in site.installation.workers if not one.wanted][:most]
    for worker in added:
        worker.release()
    try:
        yield ", ".join(worker.name for worker in added) or "nothing: all run"
    finally:
        for worker in added[1:]:
            worker.kill_and_hold()
        for worker in added[:1]:
            worker.stop_and_hold()
