"""Tables with rows of an hour and without any, made once for all tests that only read them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.settings import Settings
from tests.support.inputs.board_rows import RunSql, hour_of_rows, migrated, runner, write_rows
from tests.support.inputs.empty_tables import EmptyTables


@pytest.fixture(scope="session")
def bare(store: EmbeddedStore) -> Settings:
    """All tables and no row. Only read them."""
    return migrated(store)


@pytest.fixture(scope="session")
def hour(store: EmbeddedStore) -> Settings:
    """The hour's rows and their rollups. Only read them."""
    settings = migrated(store)
    write_rows(settings, hour_of_rows())
    return settings


@pytest.fixture(scope="session")
def empty(store: EmbeddedStore, bare: Settings) -> RunSql:
    """Run SQL on a store that has all tables and no row."""
    return runner(store, bare)


@pytest.fixture(scope="session")
def filled(store: EmbeddedStore, hour: Settings) -> RunSql:
    """Run SQL on a store that has the hour's rows and their rollups."""
    return runner(store, hour)


@pytest.fixture(scope="session")
def empty_tables(store: EmbeddedStore) -> EmptyTables:
    """Tables to write into, for as long as they are lent."""
    return EmptyTables(store)


@pytest.fixture
def own(empty_tables: EmptyTables) -> Iterator[Settings]:
    """Tables of the test's own, without a row."""
    with empty_tables.lent() as settings:
        yield settings
