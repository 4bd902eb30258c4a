"""Kafka away under load: memory stays bounded, and what engines dropped meanwhile is in the log afterwards.

The times are scaled down; TEST_OUTAGE_SECONDS=120 runs it as long as a real outage.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipeline.kafka import topics
from pipeline.local.broker.embedded import EmbeddedBroker
from schemas.events import EventsRecord, Gap, Stored
from schemas.settings import Kafka, Settings
from tests.support.checkout import ROOT
from tests.support.events_log import read_events
from tests.support.processes import KVLENS, environment, started

pytestmark = pytest.mark.night

OUTAGE_SECONDS = float(os.environ.get("TEST_OUTAGE_SECONDS", "20"))
DEEP, SHORT = 100_000, 300
"""Steps that engines keep: all of the outage, and next to nothing of it."""
BUFFERS = (DEEP, DEEP, DEEP, DEEP, DEEP, SHORT)
BLOCKS = 400
"""In a batch: its payload and its packed form are about 3.5 kB."""
PER_SECOND = 1500
HAND_OVER_BYTES = 8 << 20
BACKLOG_BYTES = 8 << 20
OUTAGE_MEMORY_BYTES = 192 << 20
"""What an outage may add, however long: unacknowledged records (32 MiB, and their copies on the way),
backlog, hand-over and sockets."""
REPLAY_MEMORY = 3
"""What catching up may add to that, in sizes of the answers: engines send all they buffer at once."""
SAY_SECONDS = 60.0
BATCH_BYTES = 9 * BLOCKS


@dataclass
class Read:
    """What the log holds of one engine: repetitions by a producer that broke down left out."""

    blocks: dict[int, bytes] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    incarnations: set[int] = field(default_factory=set)
    replayed: int = 0

    def add(self, record: EventsRecord) -> None:
        self.incarnations.add(record.incarnation)
        for batch in record.batches:
            if batch.seq is None:
                self.gaps += [event for event in batch.events if isinstance(event, Gap)]
            elif batch.seq not in self.blocks:
                (stored,) = batch.events
                assert isinstance(stored, Stored)
                self.blocks[batch.seq] = stored.hashes
                self.order.append(batch.seq)
                self.replayed += batch.replayed

    @property
    def lost(self) -> list[int]:
        return [seq for gap in self.gaps for seq in range(gap.first, gap.last + 1)]


class LoudEngines:
    """The process of `loud_engines.py`."""

    def __init__(self) -> None:
        settings = {"buffers": BUFFERS, "blocks": BLOCKS, "per_second": PER_SECOND}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("loud_engines.py")), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=environment(),
            text=True,
        )
        self.endpoints: list[tuple[str, str]] = self._said()

    def begin(self) -> None:
        self._tell()

    def end(self) -> list[int]:
        """Stop publishing; return the batches of each. Replays are answered further on."""
        self._tell()
        published: list[int] = self._said()
        return published

    def _tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def _said(self) -> Any:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], SAY_SECONDS)
        assert ready, f"the engines said nothing for {SAY_SECONDS:.0f} s"
        return json.loads(self.process.stdout.readline())


class Outage:
    """A broker to hurt, engines, a connector process, and the log."""

    def __init__(self, directory: Path, free_port: Callable[[], int]) -> None:
        self.broker = EmbeddedBroker(directory / "broker", free_port())
        self.broker.start()
        self.kafka = Kafka(
            bootstrap_servers=self.broker.bootstrap_servers, topic_prefix=f"outage-{secrets.token_hex(4)}"
        )
        asyncio.run(topics.apply(Settings(kafka=self.kafka)))
        self.engines = LoudEngines()
        self._metrics_port = free_port()
        config = directory / "kvlens.toml"
        config.write_text(
            f'[kafka]\nbootstrap_servers = "{self.kafka.bootstrap_servers}"\n'
            f'topic_prefix = "{self.kafka.topic_prefix}"\n'
            f"[connector]\nmetrics_port = {self._metrics_port}\nhand_over_bytes = {HAND_OVER_BYTES}\n"
            f"backlog_bytes = {BACKLOG_BYTES}\nsend_timeout_seconds = 10\ntail_seconds = 2\n"
            + "".join(
                f'[[replicas]]\nid = "engine-{number}"\nmodel = "m"\nendpoint = "{endpoint}"\n'
                f'replay_endpoint = "{replay}"\n'
                for number, (endpoint, replay) in enumerate(self.engines.endpoints)
            )
        )
        self.connector = started(
            [*KVLENS, "connect", "--config", str(config)], directory / "connector.log", cwd=ROOT
        )

    def close(self) -> None:
        self.connector.close()
        self.engines.process.kill()
        self.engines.process.wait(60)
        self.broker.kill()

    def metric(self, name: str) -> float:
        try:
            url = f"http://127.0.0.1:{self._metrics_port}/metrics"
            page = urllib.request.urlopen(url, timeout=60).read().decode()
        except OSError:
            return 0.0
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))

    def until(self, what: str, true: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            assert self.connector.alive, self.connector.said()[-3000:]
            assert time.monotonic() < deadline, f"{what}\n{self.connector.said()[-3000:]}"
            time.sleep(0.1)

    def peak_bytes(self) -> int:
        """The most memory that the connector has had resident so far."""
        status = Path(f"/proc/{self.connector.process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) << 10

    def read_log(self) -> list[Read]:
        found = [Read() for _ in BUFFERS]
        for record in read_events(self.kafka):
            found[int(record.replica.removeprefix("engine-"))].add(record)
        return found


@pytest.fixture
def outage(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Outage]:
    outage = Outage(tmp_path, free_port)
    yield outage
    outage.close()


def _expected(engine: int, seq: int) -> bytes:
    first = (engine << 48) + seq * BLOCKS
    return b"".join(block.to_bytes(8, "big") for block in range(first, first + BLOCKS))


@pytest.mark.parametrize("how", ["frozen", "killed"])
def test_what_engines_drop_while_kafka_is_away_is_replayed(outage: Outage, how: str) -> None:
    outage.until(
        "connected",
        lambda: outage.metric("kvlens_connector_source_connected{") == len(BUFFERS),
    )
    outage.engines.begin()
    outage.until("before", lambda: outage.metric("kvlens_connector_records_total") > 100)
    before = outage.peak_bytes()
    began = time.monotonic()
    if how == "frozen":
        outage.broker.signal(signal.SIGSTOP)
    else:
        outage.broker.kill()
    time.sleep(OUTAGE_SECONDS)
    assert outage.connector.alive, outage.connector.said()[-3000:]
    assert outage.metric("kvlens_connector_unacknowledged_bytes") >= 32 << 20
    # No engine is read any more of which more waits than is free.
    full = HAND_OVER_BYTES * len(BUFFERS) / (len(BUFFERS) + 1)
    assert outage.metric("kvlens_connector_hand_over_bytes") >= full
    during = outage.peak_bytes()
    if how == "frozen":
        outage.broker.signal(signal.SIGCONT)
    else:
        outage.broker.start()
    away = time.monotonic() - began
    time.sleep(3.0)
    published = outage.engines.end()
    outage.until(
        "everything in the log",
        lambda: (
            outage.metric("kvlens_connector_batches_total")
            + outage.metric("kvlens_connector_lost_batches_total")
            >= sum(published)
            and outage.metric("kvlens_connector_unacknowledged_bytes") == 0
        ),
        60 + OUTAGE_SECONDS,
    )
    caught_up = time.monotonic() - began - away
    time.sleep(1.0)
    after = outage.peak_bytes()
    found = outage.read_log()
    replayed = [read.replayed for read in found]
    sys.stdout.write(
        f"{how} for {away:.0f} s: {sum(published)} batches published, replayed {replayed}, lost "
        f"{[len(read.lost) for read in found]}; peak memory {before >> 20} MiB before, "
        f"{during >> 20} during, {after >> 20} after; caught up in {caught_up:.0f} s\n"
    )
    for number, (read, count, steps) in enumerate(zip(found, published, BUFFERS, strict=True)):
        assert len(read.incarnations) == 1, f"engine-{number}: {read.incarnations} {read.gaps}"
        assert read.order == sorted(read.order), f"engine-{number}: out of order"
        assert all(blocks == _expected(number, seq) for seq, blocks in read.blocks.items())
        assert sorted([*read.order, *read.lost]) == list(range(count)), f"engine-{number}: {read.gaps}"
        if steps == DEEP:
            assert read.gaps == [], f"engine-{number}"
        else:
            assert read.gaps
            assert {gap.reason for gap in read.gaps} == {"replay_truncated"}
    assert sum(replayed[: BUFFERS.index(SHORT)]) > 0, "nothing was dropped, so nothing was shown"
    assert during - before < OUTAGE_MEMORY_BYTES
    assert after - before < OUTAGE_MEMORY_BYTES + REPLAY_MEMORY * sum(replayed) * BATCH_BYTES
