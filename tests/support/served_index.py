"""An index of what a test says, and its server, in the test's own process."""

from __future__ import annotations

import json
import time
from typing import Any

import aiohttp

from pipeline.index.choices.log import ChoiceLog
from pipeline.index.following.partition import IndexedPartition
from pipeline.index.following.sources import Sources
from pipeline.index.freshness import Freshness
from pipeline.index.index import Index
from pipeline.index.server import IndexServer
from pipeline.index.telemetry import IndexMetrics
from schemas import settings
from schemas.events import Batch, Event, EventsRecord, Opened
from schemas.settings import Worker

TYPED = b"Host: localhost\r\nContent-Type: application/json\r\n"
"""Of a question that is written by hand."""


class Served:
    """An index of what a test says, and its server."""

    def __init__(self, choices: ChoiceLog | None = None, **changes: Any) -> None:
        self.sources = Sources()
        self.partition = IndexedPartition(0, Worker(), self.sources)
        self.metrics = IndexMetrics()
        # Tests say when it was current, and a busy machine may take a while to ask.
        self.freshness = Freshness(50.0)
        self.freshness.follow([0])
        self.settings = settings.Index(port=0, **changes)
        self.server = IndexServer(Index(self.sources), self.freshness, self.metrics, self.settings, choices)
        self.offset = 0

    def publish(
        self, replica: str, *events: Event, rank: int = 0, model: str = "m", domain: str = "m/x/default"
    ) -> None:
        """A source that is complete says this."""
        batches = [Batch(None, 1.0, 1.0, [Opened(0, complete=True)]), Batch(0, 2.0, 2.0, [*events])]
        record = EventsRecord(replica, model, domain, rank, 1, batches, tenant=domain.rpartition("/")[2])
        self.partition.apply(self.offset, record)
        self.partition.settle()
        self.offset += 1

    def notice(self, replica: str, event: Event) -> None:
        """The connector says this of a source that has said something."""
        record = EventsRecord(replica, "m", "m/x/default", 0, 1, [Batch(None, 3.0, 3.0, [event])])
        self.partition.apply(self.offset, record)
        self.partition.settle()
        self.offset += 1

    def catch_up(self) -> None:
        self.freshness.looked(0, next_offset=self.offset, end=self.offset, at=time.monotonic())

    async def ask(self, body: Any, path: str = "query_by_hash", **headers: str) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.server.url}{path}", data=data, headers=headers) as response,
        ):
            return response.status, await response.json()

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.server.url}{path}", headers=headers) as response,
        ):
            return response.status, await response.text()

    def refused(self, reason: str) -> float:
        return self.counted("refused", reason=reason)

    def counted(self, name: str, **labels: str) -> float:
        """Return a counter of the index, by the middle of its name."""
        return self.metrics.registry.get_sample_value(f"kvlens_index_{name}_total", labels) or 0.0
