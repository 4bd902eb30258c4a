"""Tables without a row for tests that write some: emptied and given again, as making them takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import clickhouse_connect

from schemas.settings import Settings
from tests.support.inputs.board_rows import Served, migrated

KEPT = "schema_migrations"


class EmptyTables:
    """Databases of a store with all tables and views. Who alters these, or stops merges, makes its own."""

    def __init__(self, store: Served) -> None:
        self._store = store
        self._free: list[Settings] = []

    @contextmanager
    def lent(self) -> Iterator[Settings]:
        """Give a database to one test, or for a while."""
        settings = self._free.pop() if self._free else migrated(self._store)
        yield settings
        self._empty(settings.clickhouse.database)
        self._free.append(settings)

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
