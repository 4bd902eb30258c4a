"""A running connector follows the settings file, names and engines that connect: real sockets, real Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer

from connectors.connector import run
from connectors.discovery.file import SettingsFile, SettingsUnreadable
from connectors.discovery.shards import Shard
from connectors.kafka.topics import topic_name
from connectors.process.stopping import Stop
from pipeline.kafka import topics
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.settings.loading import ConfigurationError, load
from schemas.events import Closed, EventsRecord, Opened
from schemas.settings import Settings
from tests.support.engines import Context, PubSocket


def _block(replica: str, engine: PubSocket, more: str = "") -> str:
    return f'[[replicas]]\nid = "{replica}"\nmodel = "m"\nendpoint = "{engine.endpoint}"\n{more}'


class Running:
    """A connector with a settings file, and what it has written to the log."""

    def __init__(self, path: Path, base: str, metrics_port: int) -> None:
        self._path = path
        self._base = base
        self._metrics_port = metrics_port
        self.settings = self.write("")

    def write(self, document: str) -> Settings:
        self._path.write_text(self._base + document)
        return self.read()

    def read(self) -> Settings:
        try:
            return load(self._path.read_text(), str(self._path), {}, lambda name: "").settings
        except ConfigurationError as error:
            raise SettingsUnreadable(str(error)) from error

    @contextlib.asynccontextmanager
    async def connector(self, document: str) -> AsyncIterator[None]:
        self.settings = self.write(document)
        await topics.apply(self.settings)
        self._consumer = AIOKafkaConsumer(
            topic_name(self.settings.kafka, "events"),
            bootstrap_servers=self.settings.kafka.bootstrap_servers,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
        )
        self.records: list[EventsRecord] = []
        stop = Stop()
        file = SettingsFile(self._path, self.read)
        task = asyncio.create_task(run(self.settings, stop=stop, file=file))
        async with self._consumer:
            try:
                yield
            finally:
                stop.set()
                await asyncio.wait_for(task, 60)

    async def until(self, enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not enough():
            assert time.monotonic() < deadline, "not in the log in time"
            for found in (await self._consumer.getmany(timeout_ms=100)).values():
                self.records += [msgspec.msgpack.decode(m.value, type=EventsRecord) for m in found]

    def has(self, replicas: set[str]) -> bool:
        return {record.replica for record in self.records} >= replicas

    def of(self, replica: str, rank: int = 0) -> list[EventsRecord]:
        return [record for record in self.records if (record.replica, record.dp_rank) == (replica, rank)]

    def numbers(self, replica: str, rank: int = 0) -> list[int]:
        batches = [batch for record in self.of(replica, rank) for batch in record.batches]
        return [batch.seq for batch in batches if batch.seq is not None]

    def notices(self, replica: str, rank: int = 0) -> list[object]:
        batches = [batch for record in self.of(replica, rank) for batch in record.batches]
        events = [event for batch in batches if batch.seq is None for event in batch.events]
        return [event for event in events if isinstance(event, (Opened, Closed))]

    async def until_metric(self, name: str, value: float) -> None:
        deadline = time.monotonic() + 60
        while (found := await self.metric(name)) != value:
            assert time.monotonic() < deadline, f"{name} is {found}"
            await asyncio.sleep(0.1)

    async def metric(self, name: str) -> float:
        """The sum of a metric; `name` may go on with labels."""
        url = f"http://127.0.0.1:{self._metrics_port}/metrics"
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=60).read().decode())
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))


@pytest.fixture
def running(
    tmp_path: Path,
    broker: EmbeddedBroker,
    free_port: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> Running:
    monkeypatch.setattr("connectors.discovery.file.POLL_SECONDS", 0.2)
    monkeypatch.setattr("connectors.discovery.dns.RESOLVE_SECONDS", 0.2)
    port = free_port()
    base = (
        f'[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\n'
        f'topic_prefix = "found-{secrets.token_hex(4)}"\n'
        f"[connector]\nmetrics_port = {port}\nsilent_seconds = 1.5\nlinger_seconds = 0.02\n"
        "[discovery]\n"
    )
    return Running(tmp_path / "kvlens.toml", base, port)


async def test_a_file_that_is_empty_for_a_while_ends_nothing(running: Running, context: Context) -> None:
    one, other = PubSocket(context), PubSocket(context)
    document = _block("one", one) + _block("other", other)
    async with running.connector(document):
        for engine in (one, other):
            await engine.subscribed()
            engine.publish(10)
        await running.until(lambda: len(running.numbers("one")) == len(running.numbers("other")) == 10)
        running.write("")
        await running.until_metric("kvlens_connector_doubted_absences_total", 1)
        one.publish(10)
        await running.until(lambda: len(running.numbers("one")) == 20)
        running.write(document)
        other.publish(10)
        await running.until(lambda: len(running.numbers("other")) == 20)
        assert await running.metric("kvlens_connector_sources_removed_total") == 0
    for replica in ("one", "other"):
        assert len({record.incarnation for record in running.of(replica)}) == 1


async def test_replicas_of_the_file_come_and_go(running: Running, context: Context) -> None:
    staying, going, coming = PubSocket(context), PubSocket(context), PubSocket(context)
    async with running.connector(_block("staying", staying) + _block("going", going)):
        for engine in (staying, going):
            await engine.subscribed()
            engine.publish(50)
        await running.until(lambda: len(running.numbers("staying")) == len(running.numbers("going")) == 50)
        running.write(_block("staying", staying) + _block("coming", coming))
        await coming.subscribed()
        await going.subscribed()  # the end of the subscription is a message, too
        staying.publish(50)
        coming.publish(50)
        await running.until(
            lambda: len(running.numbers("coming")) == 50 and len(running.numbers("staying")) == 100
        )
        await running.until(lambda: len(running.notices("going")) == 2)
        await running.until_metric("kvlens_connector_sources{", 2)
        with pytest.raises(SettingsUnreadable, match="has no key `colour`"):
            running.write(_block("staying", staying) + "colour = 1\n")
        await asyncio.sleep(1.0)
        staying.publish(10)
        await running.until(lambda: len(running.numbers("staying")) == 110)
        await running.until_metric("kvlens_connector_settings_failures_total", 1)
        assert await running.metric("kvlens_connector_sources_removed_total") == 1
    assert running.numbers("staying") == list(range(110))
    assert len({record.incarnation for record in running.of("staying")}) == 1
    assert running.numbers("going") == running.numbers("coming") == list(range(50))
    assert running.notices("going") == [
        Opened(0, True, going.endpoint),
        Closed("removed"),
    ]


async def test_a_replica_with_another_endpoint_is_read_anew(running: Running, context: Context) -> None:
    former, latter = PubSocket(context), PubSocket(context)
    async with running.connector(_block("r", former)):
        await former.subscribed()
        former.publish(20)
        await running.until(lambda: len(running.numbers("r")) == 20)
        running.write(_block("r", latter))
        await latter.subscribed()
        latter.publish(30)
        await running.until(lambda: len(running.numbers("r")) == 50)
    assert running.numbers("r") == [*range(20), *range(30)]
    assert running.notices("r")[:3] == [
        Opened(0, True, former.endpoint),
        Closed("removed"),
        Opened(0, True, latter.endpoint),
    ]
    first, second = sorted({record.incarnation for record in running.of("r")})[:2]
    assert first < second


async def test_a_replica_with_another_metrics_page_lives_on(running: Running, context: Context) -> None:
    engine = PubSocket(context)
    async with running.connector(_block("r", engine, 'metrics_url = "http://127.0.0.1:1/a"\n')):
        await engine.subscribed()
        engine.publish(20)
        await running.until(lambda: len(running.numbers("r")) == 20)
        running.write(_block("r", engine, 'metrics_url = "http://127.0.0.1:1/b"\n'))
        await asyncio.sleep(1.0)
        engine.publish(20)
        await running.until(lambda: len(running.numbers("r")) == 40)
    assert running.numbers("r") == list(range(40))
    assert running.notices("r")[0] == Opened(0, True, engine.endpoint)
    assert len({record.incarnation for record in running.of("r")}) == 1


async def test_addresses_of_a_name_are_replicas(running: Running, context: Context) -> None:
    engine = PubSocket(context)
    found = f"127.0.0.1:{engine.port}"
    document = (
        f'[[discovery.dns]]\nname = "localhost"\nmodel = "qwen"\nport = {engine.port}\n'
        '[[discovery.dns]]\nname = "no-such-name.invalid"\nmodel = "qwen"\n'
    )
    async with running.connector(document):
        await engine.subscribed()
        engine.publish(50)
        await running.until(lambda: len(running.numbers(found)) == 50)
        assert await running.metric("kvlens_connector_dns_failures_total") >= 1
        await running.until_metric("kvlens_connector_source_connected{", 1)
    assert running.numbers(found) == list(range(50))
    assert {record.model for record in running.of(found)} == {"qwen"}


async def test_engines_that_connect_become_replicas_and_leave_when_silent(
    running: Running, context: Context, free_port: Callable[[], int]
) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    engines = {
        name: PubSocket(context, endpoint, connects=True, topic=f"kv@{name}@org/model".encode())
        for name in ("pod-0", "pod-1")
    }
    stranger = PubSocket(context, endpoint, connects=True, topic=b"kv-events")
    static = PubSocket(context)
    impostor = PubSocket(context, endpoint, connects=True, topic=b"kv@static@m")
    document = f'[[discovery.bind]]\nendpoint = "{endpoint}"\n' + _block("static", static)
    async with running.connector(document):
        for engine in (*engines.values(), stranger, static, impostor):
            await engine.subscribed()
            engine.publish(200)
        await running.until(lambda: all(len(running.numbers(name)) == 200 for name in (*engines, "static")))
        refused = 'kvlens_connector_refused_messages_total{reason="'
        await running.until_metric(f'{refused}not_a_kv_topic"', 200)
        await running.until_metric(f'{refused}replica_id_taken"', 200)
        await running.until_metric("kvlens_connector_sources{", 3)
        await asyncio.sleep(2.5)  # idle and connected is not silent
        assert await running.metric("kvlens_connector_source_connected{") == 3
        engines["pod-0"].close()
        await running.until(lambda: len(running.notices("pod-0")) == 2)
        await running.until_metric("kvlens_connector_sources{", 2)
        engines["pod-1"].publish(10)
        await running.until(lambda: len(running.numbers("pod-1")) == 210)
        back = PubSocket(context, endpoint, connects=True, topic=b"kv@pod-0@org/model")
        await back.subscribed()
        back.publish(5)
        await running.until(lambda: len(running.numbers("pod-0")) == 205)
    for name in engines:
        assert {(record.model, record.hash_domain) for record in running.of(name)} == {
            ("org/model", "org/model/vllm-sha256-int64/default")
        }
    assert running.numbers("pod-0") == [*range(200), *range(5)]
    assert running.numbers("pod-1") == list(range(210))
    assert running.numbers("static") == list(range(200))
    first, closed, second = running.notices("pod-0")[:3]
    assert first == second == Opened(0, True, endpoint)
    assert isinstance(closed, Closed)


async def test_ranks_connect_to_ports_of_their_own(
    running: Running, context: Context, free_port: Callable[..., int]
) -> None:
    port = free_port(2)
    document = f'[[discovery.bind]]\nendpoint = "tcp://127.0.0.1:{port}"\ndp_ranks = 2\nmodel = "qwen"\n'
    async with running.connector(document):
        for rank in (0, 1):
            engine = PubSocket(
                context, f"tcp://127.0.0.1:{port + rank}", connects=True, topic=b"kv@pod@whatever"
            )
            await engine.subscribed()
            engine.publish(10 + rank)
        await running.until(lambda: [len(running.numbers("pod", rank)) for rank in (0, 1)] == [10, 11])
    assert {record.model for record in running.records} == {"qwen"}
    assert [running.numbers("pod", rank) for rank in (0, 1)] == [list(range(10)), list(range(11))]


async def test_shards_of_one_file_read_each_replica_once(
    running: Running, context: Context, tmp_path: Path
) -> None:
    engines = {f"vllm-{number}": PubSocket(context) for number in range(6)}
    document = "".join(_block(name, engine) for name, engine in engines.items())
    shares = [{name for name in engines if Shard(number, 2).owns(name)} for number in (0, 1)]
    assert all(shares)
    for number, share in enumerate(shares):
        own = Running(tmp_path / f"{number}.toml", running._base, running._metrics_port)
        own._base = own._base.replace("[discovery]", f'shard = "{number}/2"\n[discovery]')
        async with own.connector(document):
            for name in share:
                await engines[name].subscribed()
                engines[name].publish(5)
            await own.until(partial(own.has, share))
            assert await own.metric("kvlens_connector_sources{") == len(share)
    assert {name for share in shares for name in share} == set(engines)
