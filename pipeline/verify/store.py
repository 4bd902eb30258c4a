"""Reads the winning rows of the tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from clickhouse_connect.driver.client import Client

from pipeline.store_client import connect, store_unavailable
from pipeline.verify.expected import Row
from schemas.rows import EngineCountersRow, FlowRow, OccupancyRow, SourceRow, StreamHealthRow
from schemas.settings import ClickHouse

TABLES: tuple[type[Row], ...] = (OccupancyRow, FlowRow, StreamHealthRow, EngineCountersRow, SourceRow)


class StoredTables:
    """The tables of one database. Every call raises StoreUnavailable."""

    def __init__(self, store: ClickHouse) -> None:
        self._store = store
        self._client: Client = connect(store)

    def rows_of_partition(self, partition: int, partitions: int) -> Iterator[Row]:
        """Give the rows of the replicas that belong to a partition of the events topic."""
        for kind in TABLES:
            columns = kind.__struct_fields__
            statement = (
                f"SELECT {', '.join(columns)} FROM {self._store.database}.{kind.TABLE} FINAL "
                "WHERE CRC32(replica) % {partitions:UInt32} = {partition:UInt32}"
            )
            for values in self._query(statement, {"partition": partition, "partitions": partitions}):
                yield kind(**{name: _aware(value) for name, value in zip(columns, values, strict=True)})

    def rows_of_source(
        self, replica: str, dp_rank: int, first: datetime, last: datetime
    ) -> Iterator[OccupancyRow | FlowRow]:
        """Give what a source held and what came and went, in windows from `first` to `last`, included."""
        parameters = {"replica": replica, "dp_rank": dp_rank, "first": first, "last": last}
        for kind in (OccupancyRow, FlowRow):
            columns = kind.__struct_fields__
            statement = (
                f"SELECT {', '.join(columns)} FROM {self._store.database}.{kind.TABLE} FINAL "
                "WHERE replica = {replica:String} AND dp_rank = {dp_rank:UInt16} "
                "AND window >= {first:DateTime('UTC')} AND window <= {last:DateTime('UTC')}"
            )
            for values in self._query(statement, parameters):
                yield kind(**{name: _aware(value) for name, value in zip(columns, values, strict=True)})

    def rows(self, table: str, after: datetime) -> Iterator[dict[str, Any]]:
        """Give all columns of the rows of a windowed table from a window on, oldest window first."""
        statement = (
            f"SELECT * FROM {self._store.database}.{table} FINAL "
            "WHERE window >= {after:DateTime('UTC')} ORDER BY window"
        )
        with store_unavailable(self._store):
            result = self._client.query(statement, parameters={"after": after})
            for row in result.named_results():
                yield {name: _aware(value) for name, value in row.items()}

    def close(self) -> None:
        """Disconnect."""
        self._client.close()

    def _query(self, statement: str, parameters: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
        with (
            store_unavailable(self._store),
            self._client.query_row_block_stream(statement, parameters=parameters) as blocks,
        ):
            for block in blocks:
                yield from block


def _aware(value: Any) -> Any:
    """Times are UTC in the tables, and say so here."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=timezone.utc)
    return list(value) if isinstance(value, tuple) else value
