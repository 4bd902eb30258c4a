"""What a worker needs before it takes partitions: topics and rights in Kafka, tables, compiled code."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from connectors.kafka.encoding import Prefixes
from connectors.kafka.schema_registry import prefixes
from connectors.process.leaving import aside
from connectors.process.waiting import Waiting
from pipeline.clickhouse import migrations
from pipeline.errors import TablesMissing
from pipeline.kafka import topics
from pipeline.kafka.membership import leave_groups, may_join
from pipeline.kafka.rights import AGENTS, worker
from pipeline.kafka.transactions import may_write, writers
from pipeline.worker.consumer.memberships import Memberships
from pipeline.worker.warming import warm_up
from schemas.settings import ClickHouse, Kafka, Settings

_LOOK_SECONDS = 5.0
"""How long ClickHouse may take to list its tables."""


async def prepare(
    settings: Settings, groups: Sequence[str], memberships: Memberships, waiting: Waiting
) -> tuple[dict[str, topics.Found], Prefixes]:
    """Return the topics by their key, and the prefixes of records, once all is there.

    Meanwhile the code is compiled. A worker without ClickHouse could only hold partitions that others could
    work on. Raises LoginRefused, CertificateUnreadable, TopicMismatch; StoreUnavailable when
    ClickHouse refuses the login; RegistryRefused, SchemaRefused.
    """
    compiling = asyncio.create_task(aside(lambda: warm_up(fleet_agent=settings.worker.agents != "replica")))
    try:
        found = await waiting.until(lambda: _topics(settings))
        await waiting.until(lambda: may_join(settings.kafka, groups))
        ids = writers(settings.kafka, agents_of(settings), found)
        await waiting.until(lambda: may_write(settings.kafka, ids))
        written = ("residency", *(["figures"] if settings.kafka.figures else []))
        before = await waiting.until(lambda: prefixes(settings.kafka, *written))
        if settings.clickhouse.url:
            await waiting.until(lambda: _tables(settings.clickhouse))
        await compiling
        await waiting.until(lambda: _bury(settings.kafka, memberships))
    finally:
        compiling.cancel()
    return found, before


async def _topics(settings: Settings) -> dict[str, topics.Found]:
    found = {topic.key: topic for topic in await topics.describe(settings)}
    agents = [worker(agent) for agent in agents_of(settings)]
    topics.require_rights(list(found.values()), settings.kafka, agents)
    topics.check(list(found.values()))
    return found


def agents_of(settings: Settings) -> list[str]:
    """Return the agents that this worker runs, in order, without that of choices."""
    return [agent for agent in AGENTS if settings.worker.agents in ("both", agent)]


async def _bury(kafka: Kafka, memberships: Memberships) -> None:
    for members in memberships.of_the_dead():
        await leave_groups(kafka, members)


async def _tables(store: ClickHouse) -> None:
    soon = msgspec.structs.replace(store, timeout_seconds=min(store.timeout_seconds, _LOOK_SECONDS))
    # In a thread of its own, a store that hangs does not hold up an exit. Workers query no views.
    missing = await aside(lambda: migrations.missing(soon, with_views=False))
    if missing:
        raise TablesMissing(store.database, missing)
