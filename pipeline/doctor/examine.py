"""Gathers the facts: broker and store are asked concurrently, each in bounded time."""

from __future__ import annotations

import asyncio
import time

from pipeline.doctor.asking.kafka import ask_kafka
from pipeline.doctor.asking.store import ask_store
from pipeline.doctor.facts import Facts
from schemas.settings import Settings


async def examine(settings: Settings, seconds: float) -> Facts:
    """Return what is known of the fleet after at most `seconds`."""
    now = time.time()
    kafka = asyncio.create_task(ask_kafka(settings, now, seconds))
    store = asyncio.create_task(ask_store(settings.clickhouse, seconds))
    configured = tuple((replica.id, rank) for replica in settings.replicas for rank in replica.ranks)
    return Facts(now, configured, await kafka, await store)
