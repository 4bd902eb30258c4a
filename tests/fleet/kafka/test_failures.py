"""Brokers killed, restarted one by one, too few in sync, logins renewed: rows go on, `verify` is equal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fleet.kafka.brokers import NODES
from tests.fleet.kafka.installation import Installation, Kept

Say = Callable[[str], None]
AWAY_SECONDS = 20.0


class Running:
    """Connector and worker, one with a certificate and one with a password in a file."""

    def __init__(self, installation: Installation, directory: Path) -> None:
        self.installation = installation
        self.brokers = installation.brokers
        self.certificates = directory
        self.password = directory / "password"
        self.password.write_text("work-word\n")
        certificate = self.brokers.variables("connect", by_certificate=True, directory=directory)
        self.connector = installation.keep("connect", certificate)
        self.worker = installation.keep("work", self.brokers.variables("work", password_file=self.password))
        self.wait_fresh(0.0)

    @property
    def kept(self) -> list[Kept]:
        return [self.connector, self.worker]

    def wait_fresh(self, since: float | None = None) -> float:
        """Return how long the tables took to know of batches later than that, or than now."""
        return self.installation.wait_fresh(time.time() if since is None else since, kept=self.kept)

    def told(self) -> str:
        return f"ends of the connector {self.connector.ends}, of the worker {self.worker.ends}"

    def verify(self) -> None:
        """`verify` runs beside them, up to where they are."""
        self.installation.verify()


@pytest.fixture(scope="module")
def running(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(installation, tmp_path_factory.mktemp("logins"))
    yield running
    for kept in running.kept:
        kept.process.close()


def test_a_broker_is_killed_and_comes_back(running: Running, say: Say) -> None:
    running.brokers.kill(2)
    without = running.wait_fresh()
    running.brokers.launch(2)
    running.brokers.wait_ready()
    back = running.wait_fresh()
    say(f"a broker killed: fresh after {without:.1f} s, {back:.1f} s after its return; {running.told()}")
    running.verify()


def test_all_brokers_are_restarted_one_by_one(running: Running, say: Say) -> None:
    took = []
    for node in NODES:
        running.brokers.stop(node)
        running.brokers.launch(node)
        running.brokers.wait_ready()
        took.append(running.wait_fresh())
    say(f"rolling restart: fresh after {', '.join(f'{seconds:.1f}' for seconds in took)} s; {running.told()}")
    running.verify()


def test_too_few_copies_are_in_sync_for_a_while(running: Running, say: Say) -> None:
    everywhere = ("--entity-type", "brokers", "--entity-default")
    change = (*everywhere, "--add-config")
    running.brokers.configure(*change, "min.insync.replicas=3")
    running.brokers.kill(3)
    began = time.time()
    # Nothing new is acknowledged, so the tables learn of nothing that happens from here on.
    while time.time() < began + AWAY_SECONDS:
        for kept in running.kept:
            kept.look()
        time.sleep(0.2)
    assert running.installation.newest() < began + AWAY_SECONDS / 2
    running.brokers.launch(3)
    running.brokers.wait_ready()
    took = running.wait_fresh()
    running.brokers.configure(*change, "min.insync.replicas=2")
    say(f"too few in sync for {AWAY_SECONDS:.0f} s: fresh {took:.1f} s after they were; {running.told()}")
    running.verify()


def test_a_password_and_a_certificate_are_renewed_without_a_restart(running: Running, say: Say) -> None:
    ends = [list(kept.ends) for kept in running.kept]
    user = ("--entity-type", "users", "--entity-name", "work")
    running.brokers.configure(*user, "--add-config", "SCRAM-SHA-512=[iterations=4096,password=another-word]")
    running.password.write_text("another-word\n")
    running.brokers.authority.sign("connect", running.certificates)
    # Every connection is made anew.
    for node in NODES:
        running.brokers.stop(node)
        running.brokers.launch(node)
        running.brokers.wait_ready()
    took = running.wait_fresh()
    assert "kafka.sasl_password_file was read again" in running.worker.process.said()
    assert "kafka.ssl_certfile was read again" in running.connector.process.said()
    assert [kept.ends for kept in running.kept] == ends, "a process was started anew"
    say(f"logins renewed: fresh {took:.1f} s after the last broker's restart; {running.told()}")
    running.verify()
