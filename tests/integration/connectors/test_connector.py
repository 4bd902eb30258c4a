"""The whole connector: real PUB sockets, real Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import aiohttp
import msgspec
import pytest
import zmq
from aiohttp import web
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from connectors.connector import run
from connectors.discovery.static import ReplicaInvalid
from connectors.kafka.consumer import stop_consumer
from connectors.kafka.topics import partition_of, topic_name
from connectors.normalise.normaliser import Normaliser
from connectors.positions.keeper import Positions
from connectors.process.listening import PortUnavailable
from connectors.process.stopping import Stop
from pipeline.local.broker.embedded import EmbeddedBroker
from schemas.discovery_settings import Replica
from schemas.events import Batch, Closed, EngineCounters, Event, EventsRecord, Gap, Opened, Undecodable
from schemas.settings import Connector, Kafka, Settings
from tests.support.engines import Context, PubSocket
from tests.support.inputs.captures import captured_frames

PARTITIONS = 4
Frames = list[bytes]


@pytest.fixture
async def kafka(broker: EmbeddedBroker) -> Kafka:
    """Settings with topics of their own."""
    kafka = Kafka(bootstrap_servers=broker.bootstrap_servers, topic_prefix=f"test-{secrets.token_hex(4)}")
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        configuration = {"max.message.bytes": "8388608"}
        topic = NewTopic(topic_name(kafka, "events"), PARTITIONS, 1, topic_configs=configuration)
        positions = NewTopic(
            topic_name(kafka, "positions"), 1, 1, topic_configs={"cleanup.policy": "compact"}
        )
        await admin.create_topics([topic, positions])
    finally:
        await admin.close()
    return kafka


class Log:
    """Reads the events topic from its start."""

    def __init__(self, kafka: Kafka) -> None:
        self._topic = topic_name(kafka, "events")
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", fetch_max_wait_ms=50
        )
        self.messages: list[Any] = []

    async def __aenter__(self) -> Log:
        await self._consumer.start()
        self._consumer.assign([TopicPartition(self._topic, number) for number in range(PARTITIONS)])
        return self

    async def __aexit__(self, *_: object) -> None:
        await stop_consumer(self._consumer)

    def batches(self, replica: str, dp_rank: int = 0) -> list[Batch]:
        return [batch for record in self.records(replica, dp_rank) for batch in record.batches]

    def records(self, replica: str, dp_rank: int = 0) -> list[EventsRecord]:
        records = [
            msgspec.msgpack.decode(message.value, type=EventsRecord)
            for message in self.messages
            if message.key.decode() == replica
        ]
        return [record for record in records if record.dp_rank == dp_rank]

    def numbered(self, replica: str, dp_rank: int = 0) -> list[Batch]:
        return [batch for batch in self.batches(replica, dp_rank) if batch.seq is not None]

    def notices(self, replica: str, dp_rank: int = 0) -> list[Event]:
        batches = self.batches(replica, dp_rank)
        return [event for batch in batches if batch.seq is None for event in batch.events]

    async def until(self, enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not enough():
            assert time.monotonic() < deadline, "not in the log in time"
            for found in (await self._consumer.getmany(timeout_ms=200)).values():
                self.messages += found


@contextlib.asynccontextmanager
async def _running(settings: Settings) -> AsyncIterator[None]:
    stop = Stop()
    task = asyncio.create_task(run(settings, stop=stop))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(task, 60)


async def _taken(port: int, replica: str, batches: int) -> None:
    """Return when the connector has taken so many batches of a replica."""
    line = f'kvlens_connector_batches_total{{replica="{replica}"}} {float(batches)}'
    deadline = time.monotonic() + 120
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        while True:
            async with client.get("/metrics") as response:
                if line in (await response.text()).splitlines():
                    return
            assert time.monotonic() < deadline, "not taken in time"
            await asyncio.sleep(0.05)


def _settings(kafka: Kafka, replicas: Sequence[Replica], **connector: Any) -> Settings:
    return Settings(kafka=kafka, connector=Connector(**connector), replicas=tuple(replicas))


def _payload(seq: int) -> bytes:
    stored = ["BlockStored", [seq], None, [1, 2], 2, None, "GPU", None]
    return msgspec.msgpack.encode([1_700_000_000.0 + seq, [stored], 0])


def _message(seq: int) -> Frames:
    return [b"kv-events", seq.to_bytes(8, "big"), _payload(seq)]


def _expected(frames: Sequence[Frames]) -> list[Any]:
    normaliser = Normaliser(max_frame_bytes=1 << 24)
    batches = [
        normaliser.normalise(payload, seq=int.from_bytes(seq, "big"), received_at=0.0)
        for _, seq, payload in frames
    ]
    return [(batch.seq, batch.ts, batch.events, batch.engine_events) for batch in batches]


def _found(batches: Sequence[Batch]) -> list[Any]:
    return [(batch.seq, batch.ts, batch.events, batch.engine_events) for batch in batches]


async def test_captures_of_two_sources_arrive_normalised_in_order_and_described(
    kafka: Kafka, context: Context
) -> None:
    captures = {
        "vllm-a": captured_frames("vllm-0.33.0-map"),
        "sglang-b": captured_frames("sglang-0.5.15-array"),
    }
    engines = {name: PubSocket(context) for name in captures}
    replicas = [
        Replica(id=name, model="qwen", endpoint=engine.endpoint, tenant="acme", hash_scheme="sha")
        for name, engine in engines.items()
    ]
    began = time.time()
    async with Log(kafka) as log, _running(_settings(kafka, replicas)):
        for name, engine in engines.items():
            await engine.subscribed()
            engine.send(captures[name])
        await log.until(
            lambda: all(len(log.numbered(name)) == len(frames) for name, frames in captures.items())
        )
    for name, frames in captures.items():
        assert _found(log.numbered(name)) == _expected(frames)
        assert log.notices(name) == [Opened(0, True, engines[name].endpoint)], "the engines live on"
        records = log.records(name)
        (incarnation,) = {record.incarnation for record in records}
        assert began <= incarnation / 1e6 <= time.time()
        assert {(r.replica, r.model, r.tenant, r.hash_domain, r.dp_rank) for r in records} == {
            (name, "qwen", "acme", "qwen/sha/acme", 0)
        }
        assert all(began <= batch.received_at <= time.time() for batch in log.batches(name))
        for message, record in zip((m for m in log.messages if m.key.decode() == name), records, strict=True):
            assert message.partition == partition_of(name, PARTITIONS)
            numbers = [batch.seq for batch in record.batches if batch.seq is not None]
            if numbers:
                assert (record.first_seq, record.last_seq) == (numbers[0], numbers[-1])
                assert dict(message.headers)["ce_id"] == f"{name}/0/{incarnation}/{numbers[0]}".encode()
                assert dict(message.headers)["ce_source"] == f"{name}/0".encode()
                assert dict(message.headers)["ce_type"] == b"kvlens.events.v1"
    assert log.records("vllm-a")[-1].engine == "vllm"
    assert log.records("sglang-b")[-1].engine == "sglang"


async def test_ranks_of_a_replica_are_streams_of_their_own_in_one_partition(
    kafka: Kafka, context: Context
) -> None:
    captures = [captured_frames("vllm-0.25.1-map-dp0"), captured_frames("vllm-0.25.1-map-dp1")]
    first, second = _neighbours(context)
    replica = Replica(id="dp", model="m", endpoint=first.endpoint, dp_ranks=2)
    async with Log(kafka) as log, _running(_settings(kafka, [replica])):
        for engine, frames in zip((first, second), captures, strict=True):
            await engine.subscribed()
            engine.send(frames)
        await log.until(lambda: all(len(log.numbered("dp", r)) == len(captures[r]) for r in (0, 1)))
    for rank, frames in enumerate(captures):
        assert _found(log.numbered("dp", rank)) == _expected(frames)
    assert len({message.partition for message in log.messages}) == 1


async def test_bad_frames_are_told_and_cost_nothing_else(kafka: Kafka, context: Context) -> None:
    wrong: list[tuple[Frames, Undecodable]] = [
        ([b"alone"], Undecodable("frame_count")),
        ([b"two", b"frames"], Undecodable("frame_count")),
        ([b"t", bytes(8), b"\x93", b"four"], Undecodable("frame_count")),
        ([b"t", b"short", b"\x93"], Undecodable("bad_seq")),
        ([b"t", (1).to_bytes(8, "big"), b"\xc1random"], Undecodable("not_msgpack", 1)),
        ([b"t", (900).to_bytes(8, "big"), b"\xa5hello"], Undecodable("not_an_envelope", 900)),
        ([b"t", (2).to_bytes(8, "big"), bytes(50 << 20)], Undecodable("frame_too_large", 2)),
    ]
    bad, good = PubSocket(context), PubSocket(context)
    replicas = [
        Replica(id=name, model="m", endpoint=engine.endpoint)
        for name, engine in (("bad", bad), ("good", good))
    ]
    async with Log(kafka) as log, _running(_settings(kafka, replicas)):
        await bad.subscribed()
        await good.subscribed()
        bad.send([_message(0)])
        for seq, (frames, _) in enumerate(wrong, 1):
            bad.send([frames, _message(seq)])
            good.send([_message(seq - 1)])
        await log.until(lambda: len(log.numbered("bad")) == 8 and len(log.numbered("good")) == 7)
    assert [batch.seq for batch in log.numbered("bad")] == list(range(8))
    assert log.notices("bad")[1:] == [notice for _, notice in wrong]
    assert _found(log.numbered("bad")) == _expected([_message(seq) for seq in range(8)])
    assert _found(log.numbered("good")) == _expected([_message(seq) for seq in range(7)])
    assert log.notices("good") == [Opened(0, True, good.endpoint)]


async def test_restarted_engine_gets_a_new_incarnation(kafka: Kafka, context: Context) -> None:
    engine = PubSocket(context)
    replica = Replica(id="r", model="m", endpoint=engine.endpoint)
    async with Log(kafka) as log, _running(_settings(kafka, [replica])):
        await engine.subscribed()
        engine.send([_message(seq) for seq in (0, 1, 2, 5)])
        await log.until(lambda: len(log.numbered("r")) == 4)
        engine.close()
        reborn = await _reborn(context, engine.endpoint)
        await reborn.subscribed()
        second_life = [[b"", seq.to_bytes(8, "big"), _payload(1000 + seq)] for seq in range(3)]
        reborn.send(second_life)
        await log.until(lambda: len(log.numbered("r")) == 7)
    assert log.notices("r") == [
        Opened(0, True, engine.endpoint),
        Gap(3, 4, "replay_not_configured"),
        Closed("restarted"),
        Opened(0, True, engine.endpoint),
    ]
    lives: dict[int, list[int]] = {}
    for record in log.records("r"):
        lives.setdefault(record.incarnation, []).extend(b.seq for b in record.batches if b.seq is not None)
    assert [lives[incarnation] for incarnation in sorted(lives)] == [[0, 1, 2, 5], [0, 1, 2]]


async def test_stop_publishes_what_was_received(
    kafka: Kafka, context: Context, free_port: Callable[[], int]
) -> None:
    """Runs that nothing else would close for a minute."""
    port = free_port()
    engine = PubSocket(context)
    replica = Replica(id="r", model="m", endpoint=engine.endpoint)
    settings = _settings(kafka, [replica], linger_seconds=60.0, record_bytes=4 << 20, metrics_port=port)
    async with Log(kafka) as log:
        async with _running(settings):
            await engine.subscribed()
            engine.send([_message(seq) for seq in range(5000)])
            await _taken(port, "r", 5000)
        await log.until(lambda: len(log.numbered("r")) == 5000)
    assert [batch.seq for batch in log.numbered("r")] == list(range(5000))


async def test_no_linger_makes_a_record_of_every_batch(kafka: Kafka, context: Context) -> None:
    engine = PubSocket(context)
    replica = Replica(id="r", model="m", endpoint=engine.endpoint)
    async with Log(kafka) as log, _running(_settings(kafka, [replica], linger_seconds=0)):
        await engine.subscribed()
        engine.send([_message(seq) for seq in range(50)])
        await log.until(lambda: len(log.numbered("r")) == 50)
    assert [(r.first_seq, r.last_seq) for r in log.records("r") if r.first_seq is not None] == [
        (seq, seq) for seq in range(50)
    ]


async def test_nothing_of_the_prompts_gets_into_the_log(kafka: Kafka, context: Context) -> None:
    token, salt, image, session = 0x5EC12E7, "planted-salt", "planted-image-key", "planted-session"
    extra = [[salt, [image, 0]], None]
    array = ["BlockStored", [1, 2], None, [token] * 32, 16, None, "GPU", None, extra, 0]
    named = {
        "type": "BlockStored",
        "block_hashes": [3, 4],
        "parent_block_hash": 2,
        "token_ids": [token] * 32,
        "block_size": 16,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": extra,
        "session_id": session,
        "lookahead_token_ids": [token],
        "prompt": salt,
    }
    broken = ["BlockStored", "planted-hashes", None, [token] * 32, 16]
    payloads = [
        msgspec.msgpack.encode([1.0, [array, named, broken], 0]),
        msgspec.msgpack.encode({"ts": 2.0, "events": [named], "prompt": salt}),
        msgspec.msgpack.encode([salt, [image], session]),
        b"\xc1" + salt.encode(),
    ]
    engine = PubSocket(context)
    replica = Replica(id="r", model="m", endpoint=engine.endpoint)
    async with Log(kafka) as log, _running(_settings(kafka, [replica], linger_seconds=0)):
        await engine.subscribed()
        engine.send([[b"t", seq.to_bytes(8, "big"), payload] for seq, payload in enumerate(payloads)])
        engine.send([_message(4)])
        await log.until(lambda: any(batch.seq == 4 for batch in log.batches("r")))
    stored = [
        hashes for batch in log.numbered("r") for e in batch.events if (hashes := getattr(e, "hashes", b""))
    ]
    assert (1).to_bytes(8, "big") + (2).to_bytes(8, "big") in stored
    planted = [word.encode() for word in (salt, image, session, "planted")]
    planted += [token.to_bytes(4, "big"), token.to_bytes(4, "little"), str(token).encode()]
    for message in log.messages:
        everything = message.value + message.key + b"".join(value for _, value in message.headers)
        assert not [word for word in planted if word in everything]


async def test_engine_counters_join_the_stream_and_bad_pages_cost_nothing(
    kafka: Kafka, context: Context
) -> None:
    page = """\
vllm:prefix_cache_queries_total{engine="0"} 100
vllm:prefix_cache_hits_total{engine="0"} 40
vllm:prefix_cache_queries_total{engine="1"} 7
vllm:cache_config_info{engine="0",num_gpu_blocks="512",block_size="16"} 1
"""
    hung = asyncio.Event()

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=page)

    async def hang(_: web.Request) -> web.Response:
        await hung.wait()
        return web.Response()

    async def fail(_: web.Request) -> web.Response:
        raise web.HTTPInternalServerError

    application = web.Application()
    application.add_routes([web.get("/metrics", metrics), web.get("/hang", hang), web.get("/fail", fail)])
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    first, _ = _neighbours(context)
    others = {name: PubSocket(context) for name in ("hang", "fail")}
    base = f"http://127.0.0.1:{port}"
    replicas = [
        Replica(id="dp", model="m", endpoint=first.endpoint, dp_ranks=2, metrics_url=f"{base}/metrics"),
        *(
            Replica(id=name, model="m", endpoint=engine.endpoint, metrics_url=f"{base}/{name}")
            for name, engine in others.items()
        ),
    ]
    settings = _settings(kafka, replicas, scrape_seconds=0.5)
    try:
        async with Log(kafka) as log, _running(settings):
            for name, engine in others.items():
                await engine.subscribed()
                engine.send([_message(0)])
                await log.until(lambda name=name: len(log.numbered(name)) == 1)  # type: ignore[misc]
            await log.until(lambda: len(log.notices("dp", 0)) >= 2 and len(log.notices("dp", 1)) >= 2)
    finally:
        hung.set()
        await runner.cleanup()
    assert log.notices("dp", 0)[:2] == [EngineCounters(100, 40, None, None, 512, 16)] * 2
    assert log.notices("dp", 1)[:2] == [EngineCounters(7)] * 2
    assert log.notices("hang") == [Opened(0, True, others["hang"].endpoint)]


async def test_health_and_metrics_tell_the_streams_numbers(
    kafka: Kafka, context: Context, free_port: Callable[[], int]
) -> None:
    port = free_port()
    engine = PubSocket(context)
    replica = Replica(id="r", model="m", endpoint=engine.endpoint)
    settings = _settings(kafka, [replica], metrics_port=port)
    async with (
        Log(kafka) as log,
        _running(settings),
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client,
    ):
        await engine.subscribed()
        engine.send([_message(0), _message(1), _message(1), _message(5), [b"bad"], _message(6)])
        await log.until(lambda: len(log.numbered("r")) == 4)
        for path in ("/livez", "/readyz"):
            async with client.get(path) as response:
                assert response.status == 200
        async with client.get("/metrics") as response:
            lines = set((await response.text()).splitlines())
    assert {
        'kvlens_connector_batches_total{replica="r"} 4.0',
        'kvlens_connector_engine_events_total{replica="r"} 4.0',
        'kvlens_connector_duplicate_batches_total{replica="r"} 1.0',
        'kvlens_connector_lost_batches_total{replica="r"} 3.0',
        'kvlens_connector_gaps_total{reason="replay_not_configured",replica="r"} 1.0',
        'kvlens_connector_replayed_batches_total{replica="r"} 0.0',
        'kvlens_connector_undecodable_total{reason="frame_count",replica="r"} 1.0',
        "kvlens_connector_abandoned_records_total 0.0",
    } <= lines


async def test_a_connector_that_can_publish_no_more_ends_with_the_reason(
    kafka: Kafka, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ArithmeticError("of the ledger")

    monkeypatch.setattr(Positions, "acknowledged", fail)
    engine = PubSocket(context)
    replica = Replica(id="r", model="m", endpoint=engine.endpoint)
    task = asyncio.create_task(run(_settings(kafka, [replica]), stop=Stop()))
    await engine.subscribed()
    engine.send([_message(0)])
    with pytest.raises(ArithmeticError, match="of the ledger"):
        await asyncio.wait_for(task, 60)


async def test_settings_that_cannot_work_are_refused_at_the_start(
    kafka: Kafka, free_port: Callable[[], int]
) -> None:
    twice = [Replica(id="r", model="m", endpoint="tcp://127.0.0.1:1")] * 2
    with pytest.raises(ReplicaInvalid, match="listed 2 times"):
        await run(_settings(kafka, twice), stop=Stop())
    port = free_port()
    server = await asyncio.start_server(lambda reader, writer: None, "0.0.0.0", port)
    async with server:
        with pytest.raises(PortUnavailable, match=f"metrics_port {port}"):
            await run(_settings(kafka, [], metrics_port=port), stop=Stop())


def _neighbours(context: Context) -> tuple[PubSocket, PubSocket]:
    """Two engines on adjacent ports."""
    while True:
        first = PubSocket(context)
        host, _, port = first.endpoint.rpartition(":")
        with contextlib.suppress(zmq.ZMQError):
            return first, PubSocket(context, f"{host}:{int(port) + 1}")
        first.close()


async def _reborn(context: Context, endpoint: str) -> PubSocket:
    deadline = time.monotonic() + 60
    while True:
        try:
            return PubSocket(context, endpoint)
        except zmq.ZMQError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
