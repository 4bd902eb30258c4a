"""A connector whose clock is an hour off."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from tests.system.faults.campaign.site import Site, Strike


def clock_off(seconds: float) -> Strike:
    """Return the fault in which a connector runs with such a clock; in between, engines restart."""

    @contextmanager
    def strike(site: Site, rng: random.Random) -> Iterator[str]:
        connector = site.installation.connectors[0]
        site.installation.set_clock(connector, seconds)
        connector.kill()
        restarting = site.engine(rng)
        site.traffic.do(restarting.restart)
        try:
            yield f"{connector.name} by {seconds:+.0f} s, {restarting.name} restarts"
        finally:
            site.installation.set_clock(connector, 0.0)
            connector.kill()

    return strike
