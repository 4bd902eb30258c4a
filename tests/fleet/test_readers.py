"""The shipped readers in Go and Node, with the clients that they name, count what was written."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from pipeline.local.broker.embedded import EmbeddedBroker
from schemas.events import EventsRecord, Removed, Stored
from tests.support.checkout import ROOT
from tests.support.client_partition import client_partition
from tests.support.inputs.generated_logs import shared_log

EXAMPLES = ROOT / "deploy" / "examples"
PARTITIONS = 8
NODE = "node@24.21.0"
"""A Node whose zlib has zstd, of npm; the one that is installed may be older."""


def copied(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES / name, folder / name))


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"the reader was not tried: no {name}")
    return found


@pytest.fixture(scope="module")
def topic(broker: EmbeddedBroker) -> str:
    """A topic of events, compressed with zstd, in which one record came twice."""
    name = f"read-{secrets.token_hex(4)}"
    asyncio.run(write(broker.bootstrap_servers, name, LOG))
    return name


LOG = shared_log(3, replicas=4, rounds=20, began=time.time() - 600)


async def write(servers: str, topic: str, log: Sequence[EventsRecord]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=servers, compression_type="zstd") as producer:
        for record in [*log, log[-1]]:
            await producer.send_and_wait(
                topic,
                msgspec.msgpack.encode(record),
                key=record.replica.encode(),
                partition=client_partition(record.replica, PARTITIONS),
            )


def expected() -> list[str]:
    counts: dict[str, Counter[str]] = {}
    for record in LOG:
        count = counts.setdefault(f"{record.replica}/{record.dp_rank}", Counter())
        for batch in record.batches:
            for event in batch.events if batch.seq is not None else ():
                if isinstance(event, (Stored, Removed)):
                    count[type(event).__name__] += len(event.hashes) // 8
    return [f"{name}: {n['Stored']} stored, {n['Removed']} removed" for name, n in sorted(counts.items())]


def said(command: Sequence[str], folder: Path) -> list[str]:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_reader_in_go(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    folder = copied("reader-go", tmp_path)
    assert said([program("go"), "run", ".", broker.bootstrap_servers, topic], folder) == expected()


def test_reader_in_node(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    npm = program("npm")
    folder = copied("reader-node", tmp_path)
    said([npm, "install", "--no-save", "--no-audit", NODE], folder)
    node = str(folder / "node_modules" / ".bin" / "node")
    assert said([node, "reader.mjs", broker.bootstrap_servers, topic], folder) == expected()


def test_reader_on_an_old_node_says_what_it_lacks(tmp_path: Path) -> None:
    npm = program("npm")
    folder = copied("reader-node", tmp_path)
    said([npm, "install", "--no-save", "--no-audit", "node@20.20.2"], folder)
    node = str(folder / "node_modules" / ".bin" / "node")
    ended = subprocess.run(
        [node, "reader.mjs", "127.0.0.1:1", "t"], cwd=folder, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (69, "")
    assert "use Node 22.15 or newer" in ended.stderr
    assert ended.stderr.count("\n") == 1
