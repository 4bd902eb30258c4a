"""A laboratory for workers: generated events, worker processes to hurt, and tables to compare."""

from __future__ import annotations

import asyncio
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import clickhouse_connect
import msgspec
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete

from connectors.kafka.consumer import started_consumer
from connectors.kafka.topics import topic_name
from pipeline.clickhouse import migrations
from pipeline.kafka import topics
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.verify import times
from pipeline.verify.against_log import check_log
from pipeline.verify.findings import Findings
from schemas.events import EventsRecord
from schemas.json_form import to_json
from schemas.residency import ResidencyRecord
from schemas.settings import ClickHouse, Kafka, Settings, Worker
from tests.support.checkout import ROOT
from tests.support.client_partition import client_partition
from tests.support.committed import wait_committed
from tests.support.inputs.generated_logs import generated_log
from tests.support.patience import PATIENCE
from tests.support.processes import Started, started

FINE = ("occupancy_10s", "flow_10s", "stream_health_10s", "engine_counters", "sources")
ROLLED_UP = tuple(f"{name}_{per}" for name in ("occupancy", "flow", "stream_health") for per in ("1m", "1h"))


class WorkerProcess(Started):
    """A worker in a process of its own."""

    def wait_assigned(self) -> None:
        """Return when it has loaded its partitions."""
        self.wait_said("partitions assigned")

    def compiled(self) -> tuple[list[str], list[str]]:
        """Return what it compiled, or loaded compiled, before it took partitions, and what afterwards."""
        before, _, after = self.said().partition("loading partitions")
        words = "compiled "
        early, late = (
            [line.removeprefix(words) for line in text.splitlines() if line.startswith(words)]
            for text in (before, after)
        )
        return early, late


@dataclass
class Laboratory:
    """One topic prefix, one group and one database on a broker and a store."""

    settings: Settings
    directory: Path
    session_seconds: float = 30.0
    """How long the broker waits for a worker that is silent. Whoever starts in the same state directory takes
    the killed ones out of their groups at once; one that only runs slowly must not be taken for dead."""
    base_seconds: float | None = None
    """Between two bases of the fleet agent; by default as in an installation."""
    workers: list[WorkerProcess] = field(default_factory=list)

    @property
    def partitions(self) -> int:
        """Of the events topic, and of the residency topic."""
        return self.settings.kafka.partitions

    def prepare(self) -> None:
        asyncio.run(self._make_topics())
        if self.settings.clickhouse.url:
            migrations.apply(self.settings)

    async def _make_topics(self) -> None:
        """Make all topics; that of events has the times that records were received at, which may be any."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.settings.kafka.bootstrap_servers)
        await admin.start()
        events = topic_name(self.settings.kafka, "events")
        times = {"message.timestamp.type": "CreateTime", "max.message.bytes": "8388608"}
        await admin.create_topics([NewTopic(events, self.partitions, 1, topic_configs=times)])
        await admin.close()
        await topics.apply(self.settings)

    def worker(self, *, waiting_for: Path | None = None, **changes: Any) -> WorkerProcess:
        """Start one; while the file `waiting_for` exists, its consumers have met the broker and no more."""
        settings = self.settings
        if changes:
            settings = msgspec.structs.replace(
                settings, worker=msgspec.structs.replace(settings.worker, **changes)
            )
        log = self.directory / f"worker-{len(self.workers)}.log"
        command = [
            sys.executable,
            str(Path(__file__).with_name("worker_process.py")),
            str(self.session_seconds),
            str(waiting_for or ""),
            *([str(self.base_seconds)] if self.base_seconds else []),
        ]
        begun = started(command, log, cwd=ROOT, given=msgspec.json.encode(settings))
        worker = WorkerProcess(begun.process, log)
        self.workers.append(worker)
        return worker

    def produce(self, log: Sequence[EventsRecord], *, over_seconds: float = 0.0, json: bool = False) -> None:
        """Append the records in order, spread over a time."""
        asyncio.run(self._produce(log, over_seconds, json))

    async def _produce(self, log: Sequence[EventsRecord], over_seconds: float, json: bool) -> None:
        encode = to_json if json else msgspec.msgpack.encode
        kind = b"application/json" if json else b"application/msgpack"
        topic = topic_name(self.settings.kafka, "events")
        producer = AIOKafkaProducer(
            bootstrap_servers=self.settings.kafka.bootstrap_servers, enable_idempotence=True
        )
        async with producer:
            for record in log:
                partition = client_partition(record.replica, self.partitions)
                await producer.send(
                    topic,
                    encode(record),
                    key=record.replica.encode(),
                    partition=partition,
                    timestamp_ms=round(1000 * record.batches[-1].received_at) if record.batches else None,
                    headers=[("content-type", kind)],
                )
                if over_seconds:
                    await asyncio.sleep(over_seconds / len(log))
            await producer.flush()

    def remove_before(self, replica: str, offset: int) -> None:
        """Do what retention does: drop the oldest records of a replica's partition."""
        asyncio.run(self._remove_before("events", {client_partition(replica, self.partitions): offset}))

    async def _remove_before(self, topic: str, offsets: dict[int, int]) -> None:
        name = topic_name(self.settings.kafka, topic)
        admin = AIOKafkaAdminClient(bootstrap_servers=self.settings.kafka.bootstrap_servers)
        await admin.start()
        await admin.delete_records(
            {
                TopicPartition(name, partition): RecordsToDelete(offset)
                for partition, offset in offsets.items()
            }
        )
        await admin.close()

    def forget_residency(self, share: float) -> dict[int, int]:
        """Drop the oldest part of what changed in each shard, as retention does; return where each begins.

        How much there is beside changes, how far partitions are read, depends on how long they were idle.
        """
        return asyncio.run(self._forget_residency(share))

    async def _forget_residency(self, share: float) -> dict[int, int]:
        topic = topic_name(self.settings.kafka, "residency")
        places = [TopicPartition(topic, number) for number in range(self.partitions)]
        begins = {}
        async with started_consumer(
            bootstrap_servers=self.settings.kafka.bootstrap_servers,
            isolation_level="read_committed",
            enable_auto_commit=False,
        ) as consumer:
            for place, end in (await consumer.end_offsets(places)).items():
                consumer.assign([place])
                await consumer.seek_to_beginning(place)
                found: list[int] = []
                while await consumer.position(place) < end:
                    for record in (await consumer.getmany(timeout_ms=500)).get(place, []):
                        if msgspec.msgpack.decode(record.value, type=ResidencyRecord).sources:
                            found.append(record.offset)
                begins[place.partition] = found[int(len(found) * share)] if found else end
        await self._remove_before("residency", begins)
        return begins

    def committed(self) -> int:
        """Events records that are covered by commits of the group."""
        return asyncio.run(self._committed())

    async def _committed(self) -> int:
        topic = topic_name(self.settings.kafka, "events")
        async with started_consumer(
            bootstrap_servers=self.settings.kafka.bootstrap_servers,
            group_id=f"{self.settings.kafka.group}.replica",
            enable_auto_commit=False,
        ) as consumer:
            offsets = [await consumer.committed(TopicPartition(topic, n)) for n in range(self.partitions)]
        return sum(offset or 0 for offset in offsets)

    def wait_applied(self, records: int, seconds: float = PATIENCE) -> None:
        """Return when so many records are covered by committed offsets."""
        kafka = self.settings.kafka
        wait_committed(
            kafka.bootstrap_servers,
            f"{kafka.group}.replica",
            topic_name(kafka, "events"),
            self.partitions,
            records,
            seconds=seconds,
            tell=lambda: "\n".join(f"{w.log.name}:\n{w.said()[-3000:]}" for w in self.workers[-2:]),
        )

    async def _unfollowed(self, ends: dict[TopicPartition, int]) -> int:
        """Return how many residency records before `ends` no commit of the fleet agent covers.

        Empty, `ends` becomes where the log ends now. Markers do not count.
        """
        topic = topic_name(self.settings.kafka, "residency")
        left = 0
        async with started_consumer(
            bootstrap_servers=self.settings.kafka.bootstrap_servers,
            group_id=f"{self.settings.kafka.group}.fleet",
            isolation_level="read_committed",
            enable_auto_commit=False,
            # A partition waits for the fetch that is still out at the end of the one before.
            fetch_max_wait_ms=20,
        ) as consumer:
            places = [TopicPartition(topic, number) for number in range(self.partitions)]
            if not ends:
                ends.update(await consumer.end_offsets(places))
            for place in places:
                consumer.assign([place])
                consumer.seek(place, await consumer.committed(place) or 0)
                while await consumer.position(place) < ends[place]:
                    found = (await consumer.getmany(timeout_ms=500)).values()
                    left += sum(record.offset < ends[place] for records in found for record in records)
        return left

    def wait_followed(self, seconds: float = PATIENCE) -> None:
        """Return when the fleet agent has committed everything that the replica agent has told by now.

        Partitions go on to say how far they are read, so there is always something behind it.
        """
        deadline = time.monotonic() + seconds
        ends: dict[TopicPartition, int] = {}
        while left := asyncio.run(self._unfollowed(ends)):
            tails = "\n".join(worker.said()[-1500:] for worker in self.workers[-2:])
            assert time.monotonic() < deadline, (left, tails)
            time.sleep(0.3)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        client = clickhouse_connect.get_client(
            dsn=self.settings.clickhouse.url, autogenerate_session_id=False
        )
        rows = [tuple(row) for row in client.query(statement).result_rows]
        client.close()
        return rows

    def command(self, statement: str) -> None:
        client = clickhouse_connect.get_client(
            dsn=self.settings.clickhouse.url, autogenerate_session_id=False
        )
        client.command(statement)
        client.close()

    def table(self, name: str) -> list[tuple[Any, ...]]:
        """All rows FINAL, in the order of all columns; without the version where it is a clock."""
        columns = "* EXCEPT (version)" if name in ROLLED_UP else "*"
        return self.query(
            f"SELECT {columns} FROM {self.settings.clickhouse.database}.{name} FINAL ORDER BY ALL"
        )

    def findings(self, patience: float = 10.0) -> Findings:
        """Return what `kvlens verify` finds; where something differs, it is patient for all its time."""
        now = datetime.now(timezone.utc)
        return asyncio.run(
            # Workers here write figures from the beginning on.
            check_log(self.settings, now, until=None, patience=patience, figures_since=times.EPOCH)
        )

    def verified(self) -> int:
        """Assert that `kvlens verify` finds no difference; return how many rows it compared."""
        findings = self.findings()
        assert findings.equal, findings.kept[:5]
        return sum(findings.compared.values())

    def close(self) -> None:
        for worker in self.workers:
            worker.close()


@pytest.fixture(scope="session")
def laboratories(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Laboratory]:
    """A function that sets up topics and tables of fresh names on a broker and a store, if there is one."""

    def make(
        broker: EmbeddedBroker, store: EmbeddedStore | None, *, partitions: int = 8, **worker: Any
    ) -> Laboratory:
        name = f"lab_{secrets.token_hex(4)}"
        kafka = Kafka(
            bootstrap_servers=broker.bootstrap_servers, topic_prefix=name, group=name, partitions=partitions
        )
        options = {
            "checkpoint_seconds": 0.3,
            "rollup_seconds": 1.0,
            "idle_carry_seconds": 0.001,
            "stop_seconds": 30.0,
            **worker,
        }
        directory = tmp_path_factory.mktemp(name)
        laboratory = Laboratory(
            Settings(
                kafka=kafka,
                clickhouse=ClickHouse(url=store.url if store else "", database=name),
                worker=Worker(state_directory=str(directory / "faust"), **options),
            ),
            directory,
        )
        laboratory.prepare()
        return laboratory

    return make


@pytest.fixture
def new_laboratory(laboratories: Callable[..., Laboratory]) -> Iterator[Callable[..., Laboratory]]:
    """The same; workers still running after the test are killed."""
    made: list[Laboratory] = []

    def make(broker: EmbeddedBroker, store: EmbeddedStore | None, **worker: Any) -> Laboratory:
        made.append(laboratories(broker, store, **worker))
        return made[-1]

    yield make
    for laboratory in made:
        laboratory.close()


@pytest.fixture
def produced(log: list[EventsRecord]) -> Iterator[Callable[..., threading.Thread]]:
    """A function that appends the module's log, or a part of it, in the background over some seconds."""
    threads = []

    def start(laboratory: Laboratory, seconds: float, part: slice = slice(None)) -> threading.Thread:
        thread = threading.Thread(
            target=laboratory.produce, args=(log[part],), kwargs={"over_seconds": seconds}
        )
        thread.start()
        threads.append(thread)
        return thread

    yield start
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"not done after {PATIENCE:g} s"


@pytest.fixture
def new_parts(
    tmp_path: Path, free_port: Callable[[], int]
) -> Iterator[Callable[[], tuple[EmbeddedBroker, EmbeddedStore]]]:
    """A function that starts a broker and a store which the test may kill."""
    started: list[EmbeddedBroker | EmbeddedStore] = []

    def start() -> tuple[EmbeddedBroker, EmbeddedStore]:
        broker = EmbeddedBroker(tmp_path / "broker", free_port())
        store = EmbeddedStore(tmp_path / "store", free_port())
        for part in (broker, store):
            part.start()
            started.append(part)
        return broker, store

    yield start
    for part in started:
        part.kill()


@pytest.fixture(scope="session")
def all_tables() -> Callable[[Laboratory], dict[str, list[tuple[Any, ...]]]]:
    """A function that returns every table of a laboratory, FINAL and in order."""
    return lambda laboratory: {name: laboratory.table(name) for name in (*FINE, *ROLLED_UP)}


@pytest.fixture(scope="session")
def generated() -> Callable[..., list[EventsRecord]]:
    return generated_log
