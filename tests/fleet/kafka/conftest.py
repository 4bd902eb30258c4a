"""Three secured brokers and an installation on them, for all tests of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pipeline.local.clickhouse.embedded import EmbeddedStore
from tests.fleet.kafka.brokers import Brokers
from tests.fleet.kafka.installation import RIGHTS, Installation


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, free_port: Callable[..., int]) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path_factory.mktemp("brokers"), free_port, list(RIGHTS))
    try:
        brokers.start()
        yield brokers
    finally:
        brokers.close()


@pytest.fixture(scope="module")
def installation(
    brokers: Brokers, tmp_path_factory: pytest.TempPathFactory, free_port: Callable[..., int]
) -> Iterator[Installation]:
    """Every user has its rights, topics and tables are made, engines publish; no process of kvlens runs."""
    store = EmbeddedStore(tmp_path_factory.mktemp("store"), free_port())
    store.start()
    installation = Installation(brokers, store, tmp_path_factory.mktemp("installation"))
    try:
        installation.prepare()
        yield installation
    finally:
        installation.close()
        store.kill()
