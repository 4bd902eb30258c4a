"""Tables without a row for tests that write some: given again and emptied, as making them takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import clickhouse_connect
from clickhouse_connect.driver.client import Client

from schemas.settings import Settings
from tests.support.inputs.board_rows import Served, at, migrated
from tests.support.suite.servers import Shared

KEPT = "schema_migrations"


class EmptyTables:
    """Databases of a store with all tables and views. Who alters these, or stops merges, makes its own."""

    def __init__(self, store: Served, shared: Shared) -> None:
        self._store = store
        self._shared = shared

    @contextmanager
    def lent(self) -> Iterator[Settings]:
        """Give a database to one test, or for a while."""
        with self._shared.lent("tables", lambda: migrated(self._store).clickhouse.database) as database:
            if database.used:
                self._empty(database.made)
            yield at(self._store, database.made)

    @cached_property
    def _client(self) -> Client:
        return clickhouse_connect.get_client(dsn=self._store.url, autogenerate_session_id=False)

    def _empty(self, database: str) -> None:
        found = self._client.query(
            "SELECT name FROM system.tables WHERE database = {database:String} AND total_rows > 0",
            parameters={"database": database},
        )
        for (name,) in found.result_rows:
            if name != KEPT:
                self._client.command(f"TRUNCATE TABLE {database}.`{name}` SYNC")
