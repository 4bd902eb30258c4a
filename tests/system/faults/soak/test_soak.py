"""Troubled engines, and kill -9 of every process around them: nothing is lost that is not said to be.

`make soak` runs the same for three minutes; KVLENS_SOAK_SECONDS and KVLENS_SOAK_SEED change length and seed.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec
import pytest
import zmq

from schemas.settings import Connector
from tests.support.checkout import ROOT
from tests.support.processes import KVLENS, Started, as_toml, started
from tests.system.faults.soak.engines import TROUBLES, Traffic, TroubledEngine
from tests.system.faults.soak.outcome import Tables, check, read

Make = Callable[..., Any]
SECONDS = float(os.environ.get("KVLENS_SOAK_SECONDS", "14"))
SEED = int(os.environ.get("KVLENS_SOAK_SEED", "1"))
SOURCES = 20
SILENT_SECONDS = 6.0
BETWEEN_KILLS = (1.0, 4.0)
VICTIMS = ("worker", "connector", "store", "broker")
SETTLE_SECONDS = 150.0


class Supervised:
    """Connector and worker of a laboratory, started again whenever they end."""

    def __init__(self, laboratory: Any, engines: list[TroubledEngine]) -> None:
        self.laboratory = laboratory
        settings = msgspec.structs.replace(
            laboratory.settings, replicas=tuple(engine.replica for engine in engines)
        )
        self._config = laboratory.directory / "kvlens.toml"
        self._config.write_text(as_toml(settings))
        self.connectors: list[Started] = []
        self.worker = laboratory.worker()
        self._connect()

    def _connect(self) -> None:
        log = self.laboratory.directory / f"connect-{len(self.connectors)}.log"
        command = [*KVLENS, "connect", "--config", str(self._config)]
        self.connectors.append(started(command, log, cwd=ROOT))

    def revive(self) -> None:
        """Start again what has ended."""
        if not self.connectors[-1].alive:
            self._connect()
        if not self.worker.alive:
            self.worker = self.laboratory.worker()

    def kill(self, victim: str) -> None:
        (self.connectors[-1] if victim == "connector" else self.worker).kill()

    def stop(self) -> None:
        """In order: the connector, then the worker."""
        assert self.connectors[-1].end() == 0, self.tails()
        assert self.worker.end() == 0, self.tails()

    def close(self) -> None:
        for process in self.connectors:
            process.close()

    def tails(self) -> str:
        logs = sorted(self.laboratory.directory.glob("*.log"), key=lambda log: log.stat().st_mtime)
        return "\n".join(f"{log.name}:\n{log.read_text()[-1500:]}" for log in logs[-3:])


@pytest.fixture
def engines(free_port: Callable[[], int]) -> Iterator[list[TroubledEngine]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    layouts: tuple[Literal[2, 3], ...] = (2, 3)
    made = [
        TroubledEngine(
            context,
            f"engine-{n:02}",
            TROUBLES[n % len(TROUBLES)],
            layouts[n // len(TROUBLES) % 2],
            free_port(),
        )
        for n in range(SOURCES)
    ]
    yield made
    for engine in made:
        engine.end()
    context.destroy(0)


def test_every_table_is_the_truth_or_says_what_is_missing(
    engines: list[TroubledEngine], new_parts: Make, new_laboratory: Make
) -> None:
    rng = random.Random(SEED)
    broker, store = new_parts()
    laboratory = new_laboratory(broker, store, idle_carry_seconds=60.0)
    laboratory.settings = msgspec.structs.replace(
        laboratory.settings,
        connector=Connector(
            tail_seconds=2.0, silent_seconds=SILENT_SECONDS, replay_timeout_seconds=2.0, scrape_seconds=60.0
        ),
    )
    laboratory.session_seconds = 6.0
    supervised = Supervised(laboratory, engines)
    traffic = Traffic(engines, SEED, SECONDS)
    began = time.monotonic()
    said: list[str] = []
    try:
        traffic.start()
        queue: list[str] = []
        while traffic.running:
            queue = queue or rng.sample(VICTIMS, len(VICTIMS))
            pause = rng.uniform(*BETWEEN_KILLS)
            while pause > 0 and traffic.running:
                time.sleep(0.25)
                pause -= 0.25 * traffic.time_for_kills
                supervised.revive()
            if not traffic.time_for_kills:
                continue
            victim = queue.pop()
            said.append(f"{time.monotonic() - began:6.2f} kill -9 {victim}")
            part = {"store": store, "broker": broker}.get(victim)
            if part is None:
                supervised.kill(victim)
            else:
                part.kill()
                time.sleep(rng.uniform(0.0, 1.5))
                part.start()
        traffic.join()
        settle(supervised, laboratory, engines)
        supervised.stop()
        told = read(laboratory.settings.kafka)
        tables = Tables.of(laboratory)
        totals = [check(engine, told[engine.name], tables) for engine in engines]
        rows = laboratory.verified()
        print(
            f"seed {SEED}: {len(engines)} sources, {sum(got for got, _ in totals)} batches, "
            f"{sum(lost for _, lost in totals)} lost and said so, "
            f"{sum(len(engine.lives) for engine in engines)} lives, {len(said)} kills, "
            f"{rows} rows verified"
        )
    except BaseException:
        print(f"seed {SEED}", *traffic.said, *said, supervised.tails(), sep="\n")
        raise
    finally:
        traffic.join()
        supervised.close()


def settle(supervised: Supervised, laboratory: Any, engines: list[TroubledEngine]) -> None:
    """Return when the tables know the last batch of every engine that lives, and the end of the others."""
    database = laboratory.settings.clickhouse.database
    query = (
        f"SELECT replica, argMax(last_seq, incarnation), argMax(closed_reason, incarnation) "
        f"FROM {database}.sources FINAL GROUP BY replica"
    )
    wanted = {e.name: "silent" if e.ended else e.lives[-1].last_seq for e in engines}
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        supervised.revive()
        found = {
            name: reason if wanted[name] == "silent" else last
            for name, last, reason in laboratory.query(query)
        }
        if found == wanted:
            return
        assert time.monotonic() < deadline, {
            (e.name, e.trouble): (found.get(e.name), wanted[e.name])
            for e in engines
            if found.get(e.name) != wanted[e.name]
        }
        time.sleep(0.5)
