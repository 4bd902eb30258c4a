"""The embedded broker and store, one of each for a run, and a fresh database for a test."""

from __future__ import annotations

import gc
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import clickhouse_connect
import pytest
import zmq
from clickhouse_connect.driver.client import Client
from hypothesis import settings

from pipeline.clickhouse.client import without_pandas
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.local.processes.ports import KeptPorts
from tests.fleet.clickhouse.server import ClickHouseServer
from tests.support.patience import patient
from tests.support.suite.files import Files, Handing, can_be_handed_out
from tests.support.suite.hangs import Hangs
from tests.support.suite.night import ALL_EXAMPLES
from tests.support.suite.order import Measurement, Order
from tests.support.suite.resume import LeavingOut, Noting
from tests.support.suite.run import run_by_this_process
from tests.support.suite.servers import INPUT, Servers, Shared

# What decides about a change tells the same of it every time, on a busy machine, too;
# --hypothesis-profile=random looks further.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("random", derandomize=False, deadline=None)
settings.load_profile("same")
# A quarter of them by day (`tests/support/suite/night.py`).
settings.register_profile("day", settings.get_profile("same"), max_examples=ALL_EXAMPLES // 4)
# Garbage in circles is little, and looking for it among all modules takes a fifteenth of unit tests' time.
gc.set_threshold(20_000, 20, 50)
# Clients that tests make themselves are those of the pipeline here, too.
without_pandas()
patient()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-durations", action="store_true", help="write how long each file took to tests/durations.json"
    )
    parser.addoption(
        "--file-seconds",
        type=float,
        help="in a parallel run, only files that take no longer (tests/durations.json)",
    )
    parser.addoption(
        "--clickhouse",
        type=Path,
        metavar="LIBRARY",
        help="a real server of this library instead of the embedded store",
    )
    parser.addoption(
        "--seed", type=int, help="order of interleaved captures, first simulation; a random one by default"
    )
    parser.addoption(
        "--resume", type=Path, metavar="NOTES", help="leave out what this file names, add what passes"
    )


def pytest_report_header(config: pytest.Config) -> str:
    return f"captures interleave, and simulations begin, by --seed={config.getoption('seed')}"


def pytest_configure(config: pytest.Config) -> None:
    # Before the files of tests, which say how many examples they want.
    if "not night" in config.option.markexpr and settings.get_current_profile_name() == "same":
        settings.load_profile("day")
    # Before the workers of a parallel run begin, which get the options.
    if config.getoption("seed") is None:
        config.option.seed = secrets.randbelow(1 << 32)
    config.pluginmanager.register(Hangs())
    run_by_this_process()
    notes = config.getoption("resume")
    if notes is not None:
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Noting(notes))
        config.pluginmanager.register(LeavingOut(notes))
    if hasattr(config, "workerinput"):
        if can_be_handed_out(config):
            config.pluginmanager.register(Files())
        # After it, so that it has the last word.
        config.pluginmanager.register(Order(config.getoption("file_seconds")))
        return
    if config.getoption("dist", None) == "loadfile":
        config.pluginmanager.register(Handing())
        config.pluginmanager.register(Servers())
    if config.getoption("--write-durations"):
        config.pluginmanager.register(Measurement())


@pytest.fixture(scope="session")
def free_port() -> Iterator[Callable[..., int]]:
    """A function that gives a port, or so many in a row: nobody listens there, no other process gets it."""
    ports = KeptPorts()
    yield ports.any
    ports.release()


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    """A ZMQ context; its sockets are closed with it, whatever they still have to send."""
    context = _Context()
    yield context
    context.destroy(0)


class _Context(zmq.Context[zmq.Socket[bytes]]):
    """Keeps its sockets: one that is collected waits until its messages are taken, and with it the end of the
    context."""

    _kept: list[zmq.Socket[bytes]] | None = None

    def socket(self, *arguments: Any, **more: Any) -> zmq.Socket[bytes]:
        socket = super().socket(*arguments, **more)
        self._kept = [*(self._kept or ()), socket]
        return socket


@pytest.fixture(scope="session")
def shared(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """What all processes of a parallel run have in common."""
    directory = getattr(pytestconfig, "workerinput", {}).get(INPUT)
    return Shared(Path(directory) if directory else tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="session")
def broker(
    shared: Shared, tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[EmbeddedBroker]:
    """A running Kafka; use topics and groups of your own. A test that stops or kills one starts its own."""
    if (of_run := shared.running("broker")) is not None:
        yield of_run
        return
    running = EmbeddedBroker(tmp_path_factory.mktemp("broker"), free_port())
    running.start()
    yield running
    running.kill()


@pytest.fixture(scope="session")
def store(
    pytestconfig: pytest.Config,
    shared: Shared,
    tmp_path_factory: pytest.TempPathFactory,
    free_port: Callable[[], int],
) -> Iterator[EmbeddedStore | ClickHouseServer]:
    """A running ClickHouse; use the `database` fixture. Tests that stop or kill one start their own."""
    library = pytestconfig.getoption("--clickhouse")
    if not library and (of_run := shared.running("store")) is not None:
        yield of_run
        return
    directory = tmp_path_factory.mktemp("store")
    running: EmbeddedStore | ClickHouseServer = (
        ClickHouseServer(library, directory, free_port(), free_port())
        if library
        else EmbeddedStore(directory, free_port())
    )
    running.start()
    yield running
    running.kill()


@pytest.fixture(scope="session")
def store_client(store: EmbeddedStore) -> Iterator[Client]:
    """An ordinary clickhouse-connect client (no session, so it may be used from several threads).

    One for all tests: a new one asks the store for its settings first, which takes as long as many queries.
    """
    client = clickhouse_connect.get_client(dsn=store.url, autogenerate_session_id=False)
    yield client
    client.close()


@pytest.fixture
def database(store_client: Client) -> Iterator[str]:
    """The name of a fresh database, dropped afterwards."""
    name = f"test_{secrets.token_hex(4)}"
    store_client.command(f"CREATE DATABASE {name}")
    yield name
    store_client.command(f"DROP DATABASE {name} SYNC")
