"""Stores for panels: one with all tables and no row, one with an hour of rows."""

from __future__ import annotations

import pytest

from pipeline.local.clickhouse.embedded import EmbeddedStore
from tests.support.inputs.board_rows import RunSql, hour_of_rows, migrated, runner, write_rows


@pytest.fixture(scope="package")
def empty(store: EmbeddedStore) -> RunSql:
    """Run SQL on a store that has all tables and no row."""
    return runner(store, migrated(store))


@pytest.fixture(scope="package")
def filled(store: EmbeddedStore) -> RunSql:
    """Run SQL on a store that has the hour's rows and their rollups."""
    settings = migrated(store)
    write_rows(settings, hour_of_rows())
    return runner(store, settings)
