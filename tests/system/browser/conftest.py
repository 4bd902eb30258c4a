"""A page in front of a store that has an hour of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pipeline.local.clickhouse.embedded import EmbeddedStore
from tests.support.inputs.board_rows import hour_of_rows, migrated, write_rows
from tests.system.browser.tabs import Served, chromium, serve, visit

__all__ = ["chromium", "visit"]


@pytest.fixture(scope="session")
def served(
    store: EmbeddedStore, free_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    settings = migrated(store)
    write_rows(settings, hour_of_rows())
    server = serve(settings, free_port(), tmp_path_factory.mktemp("serve"))
    yield server
    server.stop()
