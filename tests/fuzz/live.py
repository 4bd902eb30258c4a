"""Lying engines before a whole kvlens, and honest ones beside them whose figures must be right at the end."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import clickhouse_connect
import msgspec
import zmq

from pipeline.clickhouse import migrations
from pipeline.kafka import topics
from pipeline.simulator.publisher import Publisher, PublisherSettings
from pipeline.verify.against_log import check_log
from schemas.discovery_settings import Replica
from schemas.settings import ClickHouse, Connector, Kafka, Settings, Worker
from tests.fuzz.liars import LIARS, Context, Liar
from tests.support.processes import KVLENS, Started, as_toml, started

HONEST_ENGINES = 3
LIES_A_STEP = 20
"""Messages of each liar for one batch of each honest engine."""
BLOCKS_A_STEP = 4
MAX_BLOCKS = 400
BLOCK_SIZE = 16
ANYWHERE = "tcp://127.0.0.1:0"
WAIT_SECONDS = 300.0
"""For tables to show what is true: it takes seconds, and more on a machine that has other things to do."""
ROLLUP_SECONDS = 30.0
"""For the minutes and hours of each table to catch up before they are recounted."""
_STREAMS = """
    SELECT replica, sum(batches) AS batches, sum(lost_batches) AS lost, sum(restarts) AS restarts,
        sum(undecodable_events) AS undecodable, sum(duplicate_batches) AS repeated, max(trust) AS trust
    FROM {}.stream_health_10s FINAL GROUP BY replica"""
_NEWEST = """
    SELECT replica, sum(blocks) AS blocks, sum(tokens) AS tokens FROM {0}.occupancy_10s FINAL
    WHERE (replica, window) IN (SELECT replica, max(window) FROM {0}.occupancy_10s GROUP BY replica)
    GROUP BY replica"""


class HonestEngine:
    """Stores some blocks a step and removes the oldest. It knows what is resident."""

    def __init__(self, context: Context, name: str) -> None:
        self.name = name
        self._publisher = Publisher(PublisherSettings(ANYWHERE, ANYWHERE), context)
        self._rng = random.Random(name)
        self.resident: list[int] = []
        self.replica = Replica(
            id=name,
            model="m",
            endpoint=self._publisher.endpoint,
            replay_endpoint=self._publisher.replay_endpoint,
        )

    @property
    def published(self) -> int:
        """Batches so far."""
        return self._publisher.published

    def step(self) -> None:
        """Publish one batch."""
        stored = [self._rng.getrandbits(64) for _ in range(BLOCKS_A_STEP)]
        removed = self.resident[: max(0, len(self.resident) + len(stored) - MAX_BLOCKS)]
        self.resident = [*self.resident[len(removed) :], *stored]
        events: list[list[Any]] = [["BlockStored", stored, None, [], BLOCK_SIZE, None, "GPU"]]
        if removed:
            events.append(["BlockRemoved", removed, "GPU"])
        self._publisher.publish(msgspec.msgpack.encode([time.time(), events, 0]))

    def wait_subscribed(self) -> None:
        assert self._publisher.wait_subscribers(timeout_seconds=WAIT_SECONDS), (
            f"{self.name} has no subscriber"
        )

    def close(self) -> None:
        self._publisher.close()


@dataclass(frozen=True, slots=True)
class Servers:
    """What the processes need that are there already."""

    bootstrap_servers: str
    store_url: str
    directory: Path
    free_port: Callable[[], int]


@dataclass(slots=True)
class Outcome:
    """What is there after the attack."""

    sent: dict[str, int]
    """Messages of each liar."""
    requests: dict[str, int]
    """Replay requests that each liar answered."""
    expected: dict[str, tuple[int, ...]]
    """Of each honest engine: batches, lost ones, lives that ended, blocks, tokens."""
    found: dict[str, tuple[int, ...]]
    """The same as the tables have it."""
    honest_trust: set[str]
    liars: dict[str, dict[str, Any]]
    """What the tables say of the streams of the liars."""
    died: list[str]
    """The last words of processes that did not live to the end."""
    recount_equal: bool
    """Whether a recount of the log gives what is in the tables, liars included."""
    recount: list[str]
    """Differences that the recount found."""
    seconds: float

    @property
    def right(self) -> bool:
        """Whether no process ended and every figure is what it should be."""
        true = self.found == self.expected and self.honest_trust == {"complete"}
        return true and not self.died and self.recount_equal

    def lines(self) -> list[str]:
        """Return the outcome for a terminal."""
        return [
            f"{sum(self.sent.values())} messages of liars in {self.seconds:.0f} s: {self.sent}",
            f"replay requests: {self.requests}",
            f"honest engines (batches, lost, lives, blocks, tokens): {self.found}, trust {self.honest_trust}",
            *([] if self.found == self.expected else [f"  expected: {self.expected}"]),
            *(f"  {row}" for row in self.liars.values()),
            f"processes that ended: {len(self.died)}",
            *self.died,
            f"recount equal: {self.recount_equal}",
            *self.recount,
        ]


class Attack:
    """One connector and one worker, with liars and honest engines before them."""

    def __init__(self, servers: Servers, seed: int) -> None:
        name = f"fuzz_{secrets.token_hex(4)}"
        self._directory = servers.directory
        self._context: Context = zmq.Context()
        self._liars: list[Liar] = [kind(self._context, seed) for kind in LIARS]
        self._honest = [HonestEngine(self._context, f"honest-{n}") for n in range(HONEST_ENGINES)]
        self._settings = Settings(
            kafka=Kafka(bootstrap_servers=servers.bootstrap_servers, topic_prefix=name, group=name),
            clickhouse=ClickHouse(url=servers.store_url, database=name),
            connector=Connector(metrics_port=servers.free_port(), replay_timeout_seconds=1.0),
            worker=Worker(
                checkpoint_seconds=0.5,
                state_directory=str(servers.directory / "faust"),
                metrics_port=servers.free_port(),
            ),
            replicas=tuple(engine.replica for engine in (*self._honest, *self._liars)),
        )
        self._processes: list[Started] = []

    def run(self, frames: int) -> Outcome:
        """Publish `frames` messages of liars; return when the tables show what is true, or do not in time."""
        began = time.monotonic()
        asyncio.run(topics.apply(self._settings))
        migrations.apply(self._settings)
        (self._directory / "kvlens.toml").write_text(as_toml(self._settings))
        worker, connector = self._start("work"), self._start("connect")
        for engine in self._honest:
            engine.wait_subscribed()
        for step in range(frames // len(self._liars)):
            if step % LIES_A_STEP == 0:
                for engine in self._honest:
                    engine.step()
            for liar in self._liars:
                liar.lie()
        for engine in self._honest:
            engine.step()
        expected = {
            engine.name: (engine.published, 0, 0, len(engine.resident), len(engine.resident) * BLOCK_SIZE)
            for engine in self._honest
        }
        found = self._wait_found(expected)
        died = [process.said()[-2_000:] for process in self._processes if not process.alive]
        equal, differences = False, ["not recounted: no worker follows the log"]
        if not died:
            connector.stop()
            now = datetime.now(timezone.utc)
            findings = asyncio.run(check_log(self._settings, now, until=None, patience=ROLLUP_SECONDS))
            worker.stop()
            equal, differences = findings.equal, [str(difference) for difference in findings.kept]
        streams = self._rows(_STREAMS)
        return Outcome(
            {liar.name: liar.sent for liar in self._liars},
            {liar.name: liar.requests for liar in self._liars},
            expected,
            found,
            {row["trust"] for row in streams if row["replica"] in expected},
            {row["replica"]: row for row in streams if row["replica"] not in expected},
            died,
            equal,
            differences,
            time.monotonic() - began,
        )

    def close(self) -> None:
        """End everything that runs."""
        for process in self._processes:
            process.close()
        for engine in (*self._liars, *self._honest):
            engine.close()
        self._context.destroy(0)

    def _start(self, command: str) -> Started:
        arguments = [*KVLENS, command, "--config", "kvlens.toml"]
        self._processes.append(started(arguments, self._directory / f"{command}.log", cwd=self._directory))
        return self._processes[-1]

    def _wait_found(self, expected: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            streams = {row["replica"]: row for row in self._rows(_STREAMS)}
            occupancy = {row["replica"]: row for row in self._rows(_NEWEST)}
            found = {
                name: tuple(
                    int(rows[name][column])
                    for rows, columns in (
                        (streams, ("batches", "lost", "restarts")),
                        (occupancy, ("blocks", "tokens")),
                    )
                    for column in columns
                    if name in rows
                )
                for name in expected
            }
            alive = all(process.alive for process in self._processes)
            if found == expected or not alive or time.monotonic() > deadline:
                return found
            time.sleep(0.3)

    def _rows(self, statement: str) -> list[dict[str, Any]]:
        client = clickhouse_connect.get_client(
            dsn=self._settings.clickhouse.url, autogenerate_session_id=False
        )
        rows = list(client.query(statement.format(self._settings.clickhouse.database)).named_results())
        client.close()
        return rows
