"""The embedded broker and store, one of each for the whole run, and a fresh database for a test that asks."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client
from hypothesis import settings

from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.ports import KeptPorts
from pipeline.local.store.embedded import EmbeddedStore

# What decides about a change tells the same of it every time; --hypothesis-profile=random looks further.
settings.register_profile("same", derandomize=True)
settings.register_profile("random", derandomize=False)
settings.load_profile("same")


@pytest.fixture(scope="session")
def free_port() -> Iterator[Callable[..., int]]:
    """A function that gives a port, or so many in a row: nobody listens there, no other process gets it."""
    ports = KeptPorts()
    yield ports.any
    ports.release()


@pytest.fixture(scope="session")
def broker(
    tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[EmbeddedBroker]:
    """A running Kafka; use topics and groups of your own. A test that stops or kills one starts its own."""
    part = EmbeddedBroker(tmp_path_factory.mktemp("broker"), free_port())
    part.start()
    yield part
    part.kill()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]) -> Iterator[EmbeddedStore]:
    """A running ClickHouse; use the `database` fixture. Tests that stop or kill one start their own."""
    part = EmbeddedStore(tmp_path_factory.mktemp("store"), free_port())
    part.start()
    yield part
    part.kill()


@pytest.fixture
def store_client(store: EmbeddedStore) -> Iterator[Client]:
    """An ordinary clickhouse-connect client (no session, so it may be used from several threads)."""
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
