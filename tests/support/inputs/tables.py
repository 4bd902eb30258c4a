"""Fixtures of tables: with rows of an hour or without any, made once for all tests, and a test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.settings import Settings
from tests.support.inputs.board_rows import HOUR, at, hour_of_rows, migrated, write_rows
from tests.support.inputs.empty_tables import EmptyTables
from tests.support.suite.servers import Shared


@pytest.fixture(scope="session")
def bare(store: EmbeddedStore, shared: Shared) -> Settings:
    """All tables and no row. Only read them."""
    return at(store, shared.once("bare", lambda: migrated(store).clickhouse.database))


@pytest.fixture(scope="session")
def hour(store: EmbeddedStore, shared: Shared) -> Settings:
    """The hour's rows and their rollups. Only read them."""

    def make() -> str:
        settings = migrated(store)
        write_rows(settings, hour_of_rows())
        return settings.clickhouse.database

    # Who began in another hour has other rows.
    return at(store, shared.once(f"hour-{HOUR:%H}", make))


@pytest.fixture(scope="session")
def empty_tables(store: EmbeddedStore, shared: Shared) -> EmptyTables:
    """Tables to write into, for as long as they are lent."""
    return EmptyTables(store, shared)


@pytest.fixture
def own(empty_tables: EmptyTables) -> Iterator[Settings]:
    """Tables of the test's own, without a row."""
    with empty_tables.lent() as settings:
        yield settings
