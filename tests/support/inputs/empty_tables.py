"""Tables without a row for tests that write some: given again and emptied, as making them takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import clickhouse_connect

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

    def _empty(self, database: str) -> None:
        client = clickhouse_connect.get_client(
            dsn=self._store.url, database=database, autogenerate_session_id=False
        )
        found = client.query(
            "SELECT name FROM system.tables WHERE database = currentDatabase() AND total_rows > 0"
        )
        for (name,) in found.result_rows:
            if name != KEPT:
                client.command(f"TRUNCATE TABLE `{name}` SYNC")
        client.close()
