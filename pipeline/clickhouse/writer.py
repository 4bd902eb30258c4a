"""Writes rows into ClickHouse: one column-oriented insert per table, in threads, in bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from typing import Any

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DataError

from pipeline.clickhouse.client import Connection, first_line, store_unavailable
from pipeline.errors import RowsRefused
from schemas.rows import Row
from schemas.settings import ClickHouse

_THREADS = 4


class Tables:
    """Writes rows; a row written twice changes nothing, so a failed call is simply repeated."""

    def __init__(self, store: ClickHouse) -> None:
        self._store = store
        self._connection = Connection(store)
        self._layouts: dict[type[Row], tuple[tuple[str, ...], list[Any]]] = {}
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tables")

    async def insert(self, rows: Sequence[Row]) -> None:
        """Insert all rows.

        Raises StoreUnavailable, when some tables may have been written, or RowsRefused.
        """
        by_type: dict[type[Row], list[Row]] = {}
        for row in rows:
            by_type.setdefault(type(row), []).append(row)
        loop = asyncio.get_running_loop()
        results = await asyncio.gather(
            *(
                loop.run_in_executor(self._threads, self._insert, kind, of_kind)
                for kind, of_kind in by_type.items()
            ),
            # So that all threads are done before the caller tries again.
            return_exceptions=True,
        )
        for result in results:
            if result is not None:
                raise result

    def close(self) -> None:
        """Wait for running inserts and disconnect."""
        self._threads.shutdown(wait=True)
        self._connection.close()

    def _insert(self, kind: type[Row], rows: list[Row]) -> None:
        with store_unavailable(self._store):
            client = self._connection.client()
            names, types = self._layout(client, kind)
            try:
                client.insert(
                    kind.TABLE,
                    [list(map(attrgetter(name), rows)) for name in names],
                    column_names=names,
                    column_types=types,
                    database=self._store.database,
                    column_oriented=True,
                )
            except DataError as error:  # from encoding the columns, before anything was sent
                raise RowsRefused(kind.TABLE, first_line(error)) from error

    def _layout(self, client: Client, kind: type[Row]) -> tuple[tuple[str, ...], list[Any]]:
        """Return the column names and their types in the table, which is asked once."""
        layout = self._layouts.get(kind)
        if layout is None:
            names = kind.__struct_fields__
            context = client.create_insert_context(
                kind.TABLE, column_names=names, database=self._store.database
            )
            layout = self._layouts[kind] = (names, list(context.column_types))
        return layout
