"""What widespread clients make of the topics: the table of docs/topics.md, by runs on a real broker."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import subprocess
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from pipeline.local.broker.embedded import EmbeddedBroker
from tests.fleet.clients import written
from tests.fleet.clients.programs import Command, ToolMissing, installed, run
from tests.fleet.clients.written import PRODUCERS_TIME, Record, Topic
from tests.support.patience import PATIENCE


class Client(NamedTuple):
    """What a client does that others do not."""

    time: str = "broker"
    """Whose time it shows."""
    aborted: str = ""
    """Keys of aborted records that pass although committed ones are asked for."""
    lag: int = 0
    """How far its committed offset stays behind the end of a log whose last transaction was aborted."""


OLD_NODE = "node@20.20.2"
BY_LAST_RECORD = 4
"""Two aborted records and two markers: it commits the offset behind the last record that it got."""
CLIENTS: Mapping[str, Client] = {
    "confluent-kafka": Client(),
    "aiokafka": Client(),
    "kafka-python": Client(),
    "KafkaJS": Client(lag=BY_LAST_RECORD),
    "platformatic": Client(time="producer", aborted="de", lag=BY_LAST_RECORD),
    "franz-go": Client(lag=BY_LAST_RECORD),
    "sarama": Client(lag=BY_LAST_RECORD),
    "kafka-clients": Client(),
    "Kafka Streams": Client(),
    "rdkafka": Client(),
}


class Run(NamedTuple):
    """What a reader printed, in the order of offsets."""

    group: str
    status: int
    records: Sequence[Record]
    times: Sequence[int]
    error: str


@pytest.fixture(scope="module")
def of_topics() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(scope="module")
def topics(broker: EmbeddedBroker, of_topics: asyncio.AbstractEventLoop) -> Iterator[Mapping[str, Topic]]:
    """By kind; one has a transaction that is open as long as the tests run."""
    held = _topics(broker.bootstrap_servers)
    yield of_topics.run_until_complete(anext(held))
    of_topics.run_until_complete(held.aclose())


async def _topics(servers: str) -> AsyncGenerator[Mapping[str, Topic]]:
    closed = {
        "gzip": await written.with_gzip(servers),
        "aborted at last": await written.aborted_at_last(servers),
        "large": await written.large(servers),
        "compacted": await written.compacted(servers),
    }
    async with written.transactions(servers) as topic:
        yield {"transactions": topic, **closed}


def ran(command: Command, servers: str, topic: Topic, *isolation: str) -> Run:
    """Run a reader until it shows something or fails.

    It gives up when nothing has come for a minute, which a busy machine may take to start it.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        run = _ran(command, servers, topic, *isolation)
        if run.records or run.status or time.monotonic() > deadline:
            return run


def _ran(command: Command, servers: str, topic: Topic, *isolation: str) -> Run:
    group = f"group-{secrets.token_hex(4)}"
    ended = subprocess.run(
        [*command, servers, topic.name, group, *isolation],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    shown = sorted(map(json.loads, ended.stdout.splitlines()), key=lambda one: one["offset"])
    records = [Record(one["offset"], one["key"], one["sha256"]) for one in shown]
    return Run(group, ended.returncode, records, [one["time"] for one in shown], ended.stderr)


async def lag(servers: str, run: Run, topic: Topic) -> int:
    """How many offsets are left, by what the reader's group committed at its end."""
    place = TopicPartition(topic.name, 0)
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        committed = (await admin.list_consumer_group_offsets(run.group))[place].offset
    finally:
        await admin.close()
    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        return int((await consumer.end_offsets([place]))[place]) - committed


def command_of(name: str, folder: Path) -> Command:
    try:
        return installed(name, folder)
    except ToolMissing as error:
        pytest.skip(f"{name} was not tried: {error}")


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_shows_what_the_table_says(
    name: str,
    broker: EmbeddedBroker,
    topics: Mapping[str, Topic],
    of_topics: asyncio.AbstractEventLoop,
    tmp_path: Path,
) -> None:
    client, servers, command = CLIENTS[name], broker.bootstrap_servers, command_of(name, tmp_path)
    asked = {(kind, ()) for kind in topics} | {("transactions", ("read_uncommitted",))}
    with ThreadPoolExecutor(3) as pool:
        made = {(k, i): pool.submit(ran, command, servers, topics[k], *i) for k, i in sorted(asked)}
    runs = {which: future.result() for which, future in made.items()}
    assert {
        which: (run.status, run.error if run.status else "") for which, run in runs.items()
    } == dict.fromkeys(runs, (0, ""))
    held = topics["transactions"]
    passed = [record for record in held.uncommitted if record.key in client.aborted]
    assert runs["transactions", ()].records == sorted([*held.committed, *passed])
    assert runs["transactions", ("read_uncommitted",)].records == sorted([*held.committed, *held.uncommitted])
    for kind in ("aborted at last", "gzip", "large", "compacted"):
        assert runs[kind, ()].records == topics[kind].committed
    # Compacted times are not told: a broker that compacts tombstones writes those of their batch anew.
    of_producer = {
        time == PRODUCERS_TIME for kind in ("transactions", "large") for time in runs[kind, ()].times
    }
    assert of_producer == {client.time == "producer"}
    last = "aborted at last"
    assert of_topics.run_until_complete(lag(servers, runs[last, ()], topics[last])) == client.lag


def test_rskafka_reads_what_is_written_without_transactions(
    broker: EmbeddedBroker, topics: Mapping[str, Topic], tmp_path: Path
) -> None:
    command, servers = command_of("rskafka", tmp_path), broker.bootstrap_servers
    read = ran(command, servers, topics["large"])
    assert (read.status, read.records, set(read.times)) == (0, topics["large"].committed, {PRODUCERS_TIME})
    assert ran(command, servers, topics["transactions"]).status != 0


@pytest.mark.parametrize("name", ["aiokafka", "kafka-python"])
def test_without_its_codec_a_reader_reads_figures_and_names_what_the_others_need(
    name: str, broker: EmbeddedBroker, topics: Mapping[str, Topic], tmp_path: Path
) -> None:
    *start, script = command_of(name, tmp_path)
    text = Path(script).read_text()
    bare = re.sub(r', "(cramjam|zstandard)==[^"]*"', "", text)
    assert bare != text
    Path(script).write_text(bare)
    _reads_gzip_and_names([*start, script], "pip install ", broker.bootstrap_servers, topics)


def test_kafkajs_on_an_old_node_reads_figures_and_names_what_the_others_need(
    broker: EmbeddedBroker, topics: Mapping[str, Topic], tmp_path: Path
) -> None:
    command = _on_an_old_node("KafkaJS", tmp_path)
    _reads_gzip_and_names(command, "use Node 22.15 or newer", broker.bootstrap_servers, topics)


def _reads_gzip_and_names(command: Command, need: str, servers: str, topics: Mapping[str, Topic]) -> None:
    read = ran(command, servers, topics["gzip"])
    assert (read.status, read.records) == (0, topics["gzip"].committed)
    refused = ran(command, servers, topics["large"])
    assert (refused.status, refused.records) == (69, [])
    *_, last = refused.error.splitlines()
    assert last.startswith("the topic is compressed with zstd")
    assert need in last


def test_platformatic_on_an_old_node_names_the_one_that_it_needs(tmp_path: Path) -> None:
    command = [*_on_an_old_node("platformatic", tmp_path), "127.0.0.1:1", "t", "g"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (69, "", 1)
    assert "use Node 22.15 or newer" in ended.stderr


def _on_an_old_node(name: str, folder: Path) -> Command:
    program = Path(command_of(name, folder)[1])
    run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-save", OLD_NODE], program.parent)
    return [str(program.parent / "node_modules" / ".bin" / "node"), str(program)]
