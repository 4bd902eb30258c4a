"""A store that is there and does not do what it should."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from tests.system.faults.campaign.site import Site, Strike
from tests.system.faults.campaign.surroundings.store_proxy import Mood


def store(mood: Mood) -> Strike:
    """Return the fault in which the store treats workers so."""

    @contextmanager
    def strike(site: Site, rng: random.Random) -> Iterator[str]:
        site.installation.proxy.feel(mood)
        try:
            yield mood
        finally:
            site.installation.proxy.feel("passes")

    return strike
