"""A topic is lost, and made again as docs/operations.md says."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from connectors.kafka.topics import topic_name
from pipeline.errors import KafkaUnavailable, TopicRefused
from pipeline.kafka import topics
from schemas.settings import Settings
from tests.system.faults.campaign.site import Site, Strike
from tests.system.faults.campaign.surroundings.part import Part

_AGAIN_SECONDS = 0.5
_PATIENCE_SECONDS = 60.0


def lost(key: str) -> Strike:
    """Return the fault that deletes a topic of the catalogue while nobody who writes it runs."""

    @contextmanager
    def strike(site: Site, rng: random.Random) -> Iterator[str]:
        installation = site.installation
        writers: list[Part] = (
            [one for one in installation.connectors if one.wanted]
            if key == "positions"
            else installation.running_workers
        )
        for part in writers:
            part.stop_and_hold()
        try:
            _patiently(lambda: asyncio.run(_delete(installation.settings, key)))
            yield topic_name(installation.settings.kafka, key)
            _patiently(lambda: asyncio.run(topics.apply(installation.settings)))
        finally:
            for part in writers:
                part.release()

    return strike


async def _delete(settings: Settings, key: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.kafka.bootstrap_servers)
    await admin.start()
    try:
        await admin.delete_topics([topic_name(settings.kafka, key)])
    finally:
        await admin.close()


def _patiently(act: Callable[[], object]) -> None:
    """Do it; again while the broker is away for another fault, or still deletes the topic."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            act()
            return
        except (KafkaError, KafkaUnavailable, TopicRefused, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(_AGAIN_SECONDS)
