"""The doctor on a real broker and a real store: what it sees, and what it does when nobody answers."""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from clickhouse_connect.driver.client import Client

from connectors.kafka.consumer import stop_consumer
from connectors.kafka.topics import topic_name
from pipeline.clickhouse import migrations, sql_files
from pipeline.clickhouse.writer import Tables
from pipeline.doctor.asking import store as asking
from pipeline.doctor.diagnosis import diagnose
from pipeline.doctor.examine import examine
from pipeline.doctor.facts import Facts, HashFacts, LogFacts, PositionFacts
from pipeline.doctor.finding import exit_code
from pipeline.kafka import topics
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.worker.checkpoint.log import CheckpointLog, Record
from schemas.discovery_settings import Replica
from schemas.events import Batch, EventsRecord, SourceStatus
from schemas.positions import PositionRecord
from schemas.rows import EngineCountersRow, Row, SourceRow, StreamHealthRow
from schemas.setting_rows import HashGroupRow
from schemas.settings import ClickHouse, Kafka, Settings

SECONDS = 60.0


@pytest.fixture
def settings(broker: EmbeddedBroker, store: EmbeddedStore, database: str) -> Settings:
    name = f"doctor_{secrets.token_hex(4)}"
    return Settings(
        kafka=Kafka(bootstrap_servers=broker.bootstrap_servers, topic_prefix=name, group=name),
        clickhouse=ClickHouse(url=store.url, database=database),
        replicas=(Replica("a", "m", "tcp://127.0.0.1:1", dp_ranks=2),),
    )


def codes(facts: Facts) -> set[str]:
    return {finding.code for finding in diagnose(facts)}


async def test_nothing_was_set_up_yet(settings: Settings) -> None:
    facts = await examine(settings, SECONDS)
    assert facts.kafka.unavailable is None
    assert facts.store.unavailable is None
    assert facts.configured == (("a", 0), ("a", 1))
    assert codes(facts) >= {"topic-missing", "migration-missing"}
    assert set(facts.store.migrations_missing) == {file.name for file in sql_files.migrations()}


async def test_topics_and_tables_that_differ_from_the_catalogue(settings: Settings, own: Settings) -> None:
    settings = msgspec.structs.replace(settings, clickhouse=own.clickhouse)
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.kafka.bootstrap_servers)
    await admin.start()
    name = topic_name(settings.kafka, "events")
    other = topic_name(settings.kafka, "positions")
    config = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    await admin.create_topics([NewTopic(name, 3, 1, topic_configs=config)])
    await admin.create_topics([NewTopic(other, 8, 1, topic_configs={"retention.ms": "1000"})])
    await admin.close()
    await _visible(settings, {"events", "positions"})
    findings = {
        (finding.code, finding.subjects): finding.message
        for finding in diagnose(await examine(settings, SECONDS))
    }
    assert findings["topic-partitions", (name,)].startswith("has 3 partitions")
    assert findings["topic-config", (name,)].startswith("cleanup.policy is compact")
    assert ("migration-missing", ()) not in findings
    missing = next(subjects for code, subjects in findings if code == "topic-missing")
    assert topic_name(settings.kafka, "checkpoints_replica") in missing
    assert name not in missing


async def _visible(settings: Settings, wanted: set[str]) -> None:
    for _ in range(200):
        found = {topic.key for topic in await topics.describe(settings) if topic.partitions}
        if found >= wanted:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(wanted)


def health_row(now: float, **changes: object) -> StreamHealthRow:
    at = datetime.fromtimestamp(now // 10 * 10, timezone.utc)
    zeros = dict.fromkeys(("duplicate_batches", "gap_batches", "replayed_batches", "lost_batches"), 0)
    row = StreamHealthRow(
        **zeros,
        window=at,
        model="m",
        replica="a",
        dp_rank=0,
        batches=10,
        events=20,
        undecodable_events=0,
        restarts=0,
        incarnation=7,
        last_seq=9,
        last_batch_at=at,
        connected=True,
        lag_seconds=0.1,
        drift_blocks=0,
        drift_since=None,
        trust="complete",
        trust_since=at,
        version=1,
    )
    return msgspec.structs.replace(row, **changes)


def source_row(now: float, **changes: object) -> SourceRow:
    at = datetime.fromtimestamp(now - 100, timezone.utc)
    row = SourceRow(
        model="m",
        replica="a",
        dp_rank=0,
        incarnation=7,
        opened_at=at,
        closed_at=None,
        closed_reason="",
        engine="vllm",
        wire_era="map",
        hash_domain="m/x/default",
        tenant="default",
        role="",
        first_seq=0,
        last_seq=9,
        remarks=["mixed_ranks"],
        trust="complete",
        trust_since=at,
        version=1,
    )
    return msgspec.structs.replace(row, **changes)


async def test_tables_tell_of_each_source(settings: Settings, own: Settings) -> None:
    settings = msgspec.structs.replace(settings, clickhouse=own.clickhouse)
    now = time.time()
    then = datetime.fromtimestamp(now - 30, timezone.utc)
    rows: list[Row] = [
        health_row(now - 20, lost_batches=3, gap_batches=5, connected=False, drift_blocks=1),
        health_row(now, gap_batches=1, last_seq=12, version=5, drift_blocks=4, drift_since=then),
        health_row(now, last_seq=11, version=4),
        health_row(now - 7200, lost_batches=1000),
        source_row(now, closed_at=then, closed_reason="superseded"),
        source_row(now, incarnation=9, trust="degraded", trust_since=then, engine="sglang"),
    ]
    rows += [
        # A shard's match outweighs what another one misses; what was said of an earlier life says nothing.
        HashGroupRow("m/x/default", "m", "a", 0, shard, incarnation, f"{shard}", alike, alone, version=shard)
        for shard, incarnation, alike, alone in ((0, 9, 0, True), (1, 9, 2, False), (2, 7, 0, True))
    ]
    for seconds, queries in ((90.0, 50), (60.0, 80), (30.0, 20)):
        at = datetime.fromtimestamp(now - seconds, timezone.utc)
        rows.append(EngineCountersRow(at, "m", "a", 0, queries, *[None] * 13, version=1))
    tables = Tables(settings.clickhouse)
    await tables.insert(rows)
    tables.close()
    facts = (await examine(settings, SECONDS)).store
    assert facts.unanswered == {}
    assert facts.hashes == {("a", 0): HashFacts(False, frozenset({"0", "1"}))}
    assert facts.written_at is not None
    assert abs(facts.written_at - now) < 30
    health = facts.health["a", 0]
    assert (health.window, health.last_seq, health.connected) == (now // 10 * 10, 12, True)
    assert (health.lost_batches, health.gap_batches, health.batches) == (3, 6, 20)
    assert health.drift_blocks == 4
    assert health.drift_since == pytest.approx(now - 30, abs=0.01)
    life = facts.sessions["a", 0]
    assert (life.incarnation, life.engine, life.trust, life.closed_at) == (9, "sglang", "degraded", None)
    assert life.trust_since == pytest.approx(now - 30, abs=0.01)
    assert (life.superseded, len(life.openings)) == (1, 2)
    assert facts.counters_fell["a", 0] == (pytest.approx(now - 30, abs=0.01),)


async def test_the_log_positions_checkpoints_and_groups(settings: Settings) -> None:
    kafka = settings.kafka
    events = topic_name(kafka, "events")
    # Whose records are as old as their producer says.
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    await admin.start()
    await admin.create_topics([NewTopic(events, 8, 1)])
    await admin.close()
    await topics.apply(settings)
    checkpoints = topic_name(kafka, "checkpoints_replica")
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    await producer.start()
    now = time.time()

    async def publish(event: EventsRecord, age: float) -> None:
        at = int((now - age) * 1000)
        await producer.send_and_wait(events, msgspec.msgpack.encode(event), partition=3, timestamp_ms=at)

    for seq, age in ((4, 3600.0), (5, 40.0), (6, 5.0)):
        batch = Batch(seq, now, now, [])
        await publish(EventsRecord("a", "m", "d", 0, 7, [batch], first_seq=seq, last_seq=seq), age)
    await publish(EventsRecord("a", "m", "d", 1, 8, [Batch(None, now, now, [SourceStatus(False)])]), 2.0)
    position = PositionRecord("a", 0, 3, 2, incarnation=7, seq=6)
    name = topic_name(kafka, "positions")
    await producer.send_and_wait(name, msgspec.msgpack.encode(position), key=b"a/0", partition=0)
    await producer.stop()

    log = CheckpointLog(kafka, group=f"{kafka.group}.replica", topic=events, partition=3)
    await log.open()
    await log.commit(1, [Record(checkpoints, 3, b"k", b"v")])
    await log.close()

    facts = (await examine(settings, SECONDS)).kafka
    assert facts.unanswered == {}
    # The settled one is that of 40 s ago; the one of an hour ago was not even read.
    assert facts.log["a", 0] == LogFacts(7, 6, pytest.approx(now - 5, abs=0.01), (7, 5))
    assert facts.log["a", 1] == LogFacts(8, None, pytest.approx(now - 2, abs=0.01))
    assert facts.newest_record_at == pytest.approx(now - 2, abs=0.01)
    assert facts.log_seconds > 60
    assert facts.positions == {("a", 0): PositionFacts(7, 6, 3, pytest.approx(now, abs=60))}
    (group,) = [group for group in facts.groups if group.topic == events]
    assert (group.name, group.members) == (f"{kafka.group}.replica", 0)
    assert {number: count for number, count in group.waiting.items() if count} == {3: 3}
    assert group.saved_at[3] == pytest.approx(now, abs=30)
    assert group.waiting_since == {3: pytest.approx(now - 40, abs=0.01)}, "the first not committed"

    consumer = AIOKafkaConsumer(
        events, bootstrap_servers=kafka.bootstrap_servers, group_id=f"{kafka.group}.replica"
    )
    await consumer.start()
    try:
        await consumer.commit({TopicPartition(events, 3): 4})
        facts = (await examine(settings, SECONDS)).kafka
    finally:
        await stop_consumer(consumer)
    (group,) = [group for group in facts.groups if group.topic == events]
    assert (group.members, sum(group.waiting.values())) == (1, 0)


@pytest.fixture
def deaf() -> Iterator[int]:
    """A port that takes connections and never says anything."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield listener.getsockname()[1]


async def test_parts_that_say_nothing_take_no_longer_than_asked_for(settings: Settings, deaf: int) -> None:
    silent = msgspec.structs.replace(
        settings,
        kafka=msgspec.structs.replace(settings.kafka, bootstrap_servers=f"127.0.0.1:{deaf}"),
        clickhouse=msgspec.structs.replace(settings.clickhouse, url=f"http://127.0.0.1:{deaf}"),
    )
    began = time.monotonic()
    facts = await examine(silent, 1.5)
    # The Kafka client alone waits for 40 s.
    assert time.monotonic() - began < 30
    findings = diagnose(facts)
    assert [finding.code for finding in findings] == ["kafka-unavailable", "store-unavailable"]
    assert exit_code(findings) == 1


async def test_parts_that_are_not_there(settings: Settings, free_port: Callable[[], int]) -> None:
    absent = msgspec.structs.replace(
        settings,
        kafka=msgspec.structs.replace(settings.kafka, bootstrap_servers=f"127.0.0.1:{free_port()}"),
        clickhouse=msgspec.structs.replace(settings.clickhouse, url=f"http://127.0.0.1:{free_port()}"),
    )
    assert codes(await examine(absent, SECONDS)) == {"kafka-unavailable", "store-unavailable"}


@pytest.mark.night
async def test_tables_that_may_not_be_read_leave_the_verdict_open(
    settings: Settings, store_client: Client
) -> None:
    migrations.apply(settings)
    store_client.command(f"DROP TABLE {settings.clickhouse.database}.engine_counters SYNC")
    facts = await examine(settings, SECONDS)
    assert set(facts.store.unanswered) == {"engine_counters"}
    assert facts.store.late == ()
    assert "store-unanswered" in codes(facts)


async def test_a_busy_store_leaves_the_findings_that_it_answered(
    settings: Settings, own: Settings, store_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One view takes longer than there is; what was asked before it, and after a refusal, still counts."""
    settings = msgspec.structs.replace(settings, clickhouse=own.clickhouse)
    name = settings.clickhouse.database
    store_client.command(
        f"INSERT INTO {name}.sources (model, replica, opened_at, trust, trust_since, version) "
        "SELECT 'm', 'a', now64(3), 'degraded', now64(3), 1"
    )
    store_client.command(
        f"INSERT INTO {name}.stream_health_10s (window, model, replica, connected, trust, trust_since) "
        "SELECT now(), 'm', 'a', 0, 'degraded', now64(3)"
    )
    whole = await examine(settings, SECONDS)
    assert whole.store.late == ()
    wanted = {"source-disconnected", "trust-degraded"}
    assert wanted <= codes(whole)
    released = threading.Event()
    monkeypatch.setitem(asking._QUESTIONS, "hashes", ("source_hashes", lambda *_: released.wait(60)))
    try:
        facts = await examine(settings, 8.0)
    finally:
        released.set()
    assert facts.store.late == ("source_hashes", "engine_counters")
    assert wanted | {"store-busy"} <= codes(facts)
    assert not {"store-unavailable", "source-unknown"} & codes(facts)

    def too_large(client: Client, _: object) -> Any:
        large = "SELECT groupArray(number) FROM numbers(10000000)"
        return client.query(large, settings={"max_memory_usage": 1000})

    monkeypatch.setitem(asking._QUESTIONS, "hashes", ("source_hashes", too_large))
    facts = await examine(settings, SECONDS)
    assert facts.store.late == ("source_hashes",)
    assert wanted | {"store-busy"} <= codes(facts)
