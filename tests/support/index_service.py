"""`kvlens index` as a process of its own, and the log and checkpoints that it reads."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from aiokafka import AIOKafkaProducer

from connectors.kafka.topics import topic_name
from pipeline.kafka import topics
from pipeline.residency.partition import PartitionState
from pipeline.worker.checkpoint.log import CheckpointLog, Record
from schemas.checkpoints import TOPICS_KEY, StateTopics
from schemas.events import EventsRecord
from schemas.settings import Settings, Worker
from tests.support.checkout import ROOT
from tests.support.client_partition import client_partition
from tests.support.preloaded import preloaded
from tests.support.processes import KVLENS, Started, as_toml, started
from tests.support.suite.servers import Shared

PARTITIONS = 8
ADDRESS = "answers are on "


@dataclass
class IndexLog:
    """Topics of one prefix, written as a connector and a worker write them."""

    settings: Settings
    states: dict[int, PartitionState] = field(default_factory=dict)
    """What the replica agent knows, by partition."""
    written: int = 0

    def prepare(self) -> None:
        asyncio.run(topics.apply(self.settings))
        self.states = {
            number: PartitionState(number, Worker(), shards=1, partitions=PARTITIONS)
            for number in range(PARTITIONS)
        }

    def produce(
        self, records: Iterable[EventsRecord], *, applied: bool = False, compression: str | None = None
    ) -> None:
        """Append records in order; where `applied`, the replica agent has them, too."""
        asyncio.run(self._produce([*records], applied, compression))

    async def _produce(self, records: Sequence[EventsRecord], applied: bool, compression: str | None) -> None:
        topic = topic_name(self.settings.kafka, "events")
        async with AIOKafkaProducer(
            bootstrap_servers=self.settings.kafka.bootstrap_servers,
            enable_idempotence=True,
            compression_type=compression,
        ) as producer:
            for record in records:
                partition = client_partition(record.replica, PARTITIONS)
                sent = await producer.send(
                    topic,
                    msgspec.msgpack.encode(record),
                    key=record.replica.encode(),
                    partition=partition,
                    headers=[("content-type", b"application/msgpack")],
                )
                self.written += 1
                if applied:
                    self.states[partition].apply((await sent).offset, record)

    def checkpoint(self) -> None:
        """Commit what the replica agent has applied, as a worker does."""
        asyncio.run(self._checkpoint())

    async def _checkpoint(self) -> None:
        events = topic_name(self.settings.kafka, "events")
        into = topic_name(self.settings.kafka, "checkpoints_replica")
        found = await topics.describe(self.settings)
        of = msgspec.msgpack.encode(StateTopics({one.name: one.id for one in found if one.key == "events"}))
        for number, state in self.states.items():
            state.leaves()
            cut = state.cut(0.0)
            if cut.dirty:
                log = CheckpointLog(self.settings.kafka, group=f"{into}.test", topic=events, partition=number)
                await log.open()
                saved = [*cut.checkpoints, (TOPICS_KEY, of)]
                await log.commit(cut.next_offset, [Record(into, number, *each) for each in saved])
                await log.close()


class IndexProcess(Started):
    """A running index."""

    @property
    def url(self) -> str:
        said = self.said()
        return said[said.index(ADDRESS) + len(ADDRESS) :].split()[0]

    def ask(
        self,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        raw: bytes | None = None,
    ) -> tuple[int, Any]:
        """Return status and answer; a body is sent as JSON, by POST."""
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        typed = {"Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(self.url + path, data, typed)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status, _read(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _read(error)


def _read(response: Any) -> Any:
    text = response.read()
    return json.loads(text) if "json" in response.headers["Content-Type"] else text.decode()


def index_process(
    settings: Settings, directory: Path, name: str = "index", *options: str, shared: Shared | None = None
) -> IndexProcess:
    """Start one, as a fork if others of the run do, and return when it listens."""
    config, log = directory / f"{name}.toml", directory / f"{name}.log"
    config.write_text(as_toml(settings))
    arguments = ["index", "--config", str(config), *options]
    if shared is None:
        begun = started([*KVLENS, *arguments], log, cwd=ROOT)
    else:
        begun = preloaded(shared, arguments, log, cwd=ROOT)
    index = IndexProcess(begun.process, begun.log)
    index.wait_said(ADDRESS)
    return index
