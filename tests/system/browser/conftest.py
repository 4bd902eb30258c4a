"""A page in front of a store that has an hour of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.inputs import crowd
from tests.support.inputs.board_rows import write_rows
from tests.support.inputs.empty_tables import EmptyTables
from tests.support.inputs.tables import empty_tables, hour
from tests.system.browser.tabs import Served, chromium, serve, visit

__all__ = ["chromium", "empty_tables", "hour", "visit"]


@pytest.fixture(scope="session")
def served(
    empty_tables: EmptyTables, free_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    with empty_tables.lent() as settings:
        write_rows(settings, crowd.ordinary())
        server = serve(settings, free_port(), tmp_path_factory.mktemp("serve"))
        yield server
        server.stop()


@pytest.fixture(scope="session")
def crowded(
    empty_tables: EmptyTables, free_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A page in front of more models and replicas than a chart has places for."""
    with empty_tables.lent() as settings:
        write_rows(settings, crowd.rows())
        server = serve(settings, free_port(), tmp_path_factory.mktemp("crowded"))
        yield server
        server.stop()
