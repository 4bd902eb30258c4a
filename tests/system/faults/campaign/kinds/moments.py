"""A worker is killed at a certain point of its work, which the proxy or its log shows."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.system.faults.campaign.site import Site, Strike
from tests.system.faults.campaign.surroundings.store_proxy import Moment

_COMES_SECONDS = 120.0
_LONGEST_LOAD_SECONDS = 0.6


def killed_when(moment: Moment) -> Strike:
    """Return the fault that kills a worker at a moment that the proxy sees."""

    @contextmanager
    def strike(site: Site, rng: random.Random) -> Iterator[str]:
        worker = site.worker(rng)
        port = site.installation.proxy_ports[worker.name]
        came = site.installation.proxy.arm(port, moment, worker.kill_and_hold).wait(_COMES_SECONDS)
        site.installation.proxy.disarm(port)
        try:
            yield worker.name if came else f"nothing: {worker.name} did not come to it"
        finally:
            worker.release()

    return strike


@contextmanager
def killed_in_rebalance(site: Site, rng: random.Random) -> Iterator[str]:
    """Another worker joins; one of the two is killed when partitions are given up and not yet loaded."""
    worker = site.worker(rng)
    other = next((one for one in site.installation.workers if not one.wanted), None)
    if other is None:
        yield "nothing: no place for another worker"
        return
    mark = worker.mark()
    other.release()
    came = worker.wait_said("partitions given up", mark, _COMES_SECONDS)
    victim = rng.choice([worker, other])
    victim.kill_and_hold()
    try:
        yield f"{victim.name} of {worker.name} and {other.name}" if came else "nothing: no rebalance came"
    finally:
        worker.release()
        other.stop_and_hold()


@contextmanager
def killed_while_loading(site: Site, rng: random.Random) -> Iterator[str]:
    """A worker is killed, and its successor again while it loads its state."""
    worker = site.worker(rng)
    worker.kill()
    mark = worker.mark()
    came = worker.wait_said("loading partitions", mark, _COMES_SECONDS)
    time.sleep(rng.uniform(0.0, _LONGEST_LOAD_SECONDS))
    worker.kill_and_hold()
    try:
        yield worker.name if came else f"nothing: {worker.name} did not begin to load"
    finally:
        worker.release()


@contextmanager
def killed_while_stopping(site: Site, rng: random.Random) -> Iterator[str]:
    """A worker is asked to end, and killed before it has."""
    worker = site.worker(rng)
    mark = worker.mark()
    worker.signal(signal.SIGTERM)
    came = worker.wait_said("stopping", mark, _COMES_SECONDS)
    time.sleep(rng.uniform(0.0, 0.5))
    worker.kill_and_hold()
    try:
        yield worker.name if came else f"nothing: {worker.name} did not begin to stop"
    finally:
        worker.release()
