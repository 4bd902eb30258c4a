"""Tables with rows of an hour and without any, and ways to ask them."""

from __future__ import annotations

import pytest

from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.settings import Settings
from tests.support.inputs.board_rows import RunSql, remembering, runner
from tests.support.inputs.tables import bare, empty_tables, hour, own

__all__ = ["bare", "empty_tables", "hour", "own"]


@pytest.fixture(scope="session")
def empty(store: EmbeddedStore, bare: Settings) -> RunSql:
    """Run SQL on a store that has all tables and no row."""
    return remembering(runner(store, bare))


@pytest.fixture(scope="session")
def filled(store: EmbeddedStore, hour: Settings) -> RunSql:
    """Run SQL on a store that has the hour's rows and their rollups."""
    return remembering(runner(store, hour))
