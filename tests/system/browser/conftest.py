"""A page in front of a store that has an hour of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pipeline.local.clickhouse.embedded import EmbeddedStore
from tests.support.inputs import crowd
from tests.support.inputs.board_rows import migrated, write_rows
from tests.system.browser.tabs import Served, chromium, serve, visit

__all__ = ["chromium", "visit"]


@pytest.fixture(scope="session")
def served(
    store: EmbeddedStore, free_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    settings = migrated(store)
    write_rows(settings, crowd.ordinary())
    server = serve(settings, free_port(), tmp_path_factory.mktemp("serve"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def crowded(
    store: EmbeddedStore, free_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A page in front of more models and replicas than a chart has places for."""
    settings = migrated(store)
    write_rows(settings, crowd.rows())
    server = serve(settings, free_port(), tmp_path_factory.mktemp("crowded"))
    yield server
    server.stop()
