"""Reads the rows of the tables, of several with one key the winning one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from typing import Any, TypeVar, get_args

from clickhouse_connect.driver.client import Client
from msgspec import Struct

from pipeline.clickhouse.client import connect, store_unavailable
from pipeline.verify.fleet.expected import FleetRow
from pipeline.verify.replica.expected import ReplicaRow
from schemas.figures import FIGURES
from schemas.fleet_rows import ChoiceRow
from schemas.rows import FlowRow, OccupancyRow
from schemas.settings import ClickHouse

TABLES: tuple[type[ReplicaRow], ...] = get_args(ReplicaRow)
FLEET_TABLES: tuple[type[FleetRow], ...] = get_args(FleetRow)

_Kind = TypeVar("_Kind", bound=Struct)


class StoredTables:
    """The tables of one database. Every call raises StoreUnavailable."""

    def __init__(self, store: ClickHouse) -> None:
        self._store = store
        self._client: Client = connect(store)

    def rows_of_partition(self, partition: int, partitions: int) -> Iterator[ReplicaRow]:
        """Yield the rows of the replicas that belong to a partition of the events topic."""
        return self._of_partition(TABLES, "replica", partition, partitions)

    def rows_of_shard(self, shard: int) -> Iterator[FleetRow]:
        """Yield the rows of a partition of the residency topic."""
        for kind in FLEET_TABLES:
            yield from self._rows(kind, "shard = {shard:UInt16}", {"shard": shard})

    def choices_of_partition(self, partition: int, partitions: int) -> Iterator[ChoiceRow]:
        """Yield the choices of requests that belong to a partition of the topic of choices."""
        return self._of_partition((ChoiceRow,), "request_id", partition, partitions)

    def figures_of_partition(self, partition: int, partitions: int) -> Iterator[Any]:
        """Yield the rows that are figures, of the replicas of a partition of the figures topic."""
        return self._of_partition(FIGURES, "replica", partition, partitions)

    def _of_partition(
        self, kinds: Iterable[type[_Kind]], key: str, partition: int, partitions: int
    ) -> Iterator[_Kind]:
        which = f"kafkaMurmurHash({key}) % {{partitions:UInt32}} = {{partition:UInt32}}"
        for kind in kinds:
            yield from self._rows(kind, which, {"partition": partition, "partitions": partitions})

    def rows_by_partition(self, partitions: int) -> list[int]:
        """Return how many rows belong to each partition of the events topic; earlier versions may count."""
        return self._counts(TABLES, "kafkaMurmurHash(replica) % {of:UInt32}", partitions)

    def rows_by_shard(self, shards: int) -> list[int]:
        """Return how many rows belong to each partition of the residency topic."""
        return self._counts(FLEET_TABLES, "shard % {of:UInt32}", shards)

    def _counts(self, kinds: tuple[type[Any], ...], which: str, of: int) -> list[int]:
        counts = [0] * of
        for kind in kinds:
            statement = (
                f"SELECT {which} AS of_it, count() FROM {self._store.database}.{kind.TABLE} GROUP BY of_it"
            )
            with store_unavailable(self._store):
                for number, rows in self._client.query(statement, parameters={"of": of}).result_rows:
                    counts[number] += rows
        return counts

    def rows_of_source(
        self, replica: str, dp_rank: int, first: datetime, last: datetime
    ) -> Iterator[OccupancyRow | FlowRow]:
        """Yield occupancy and flow of a source in windows from `first` to `last`, both included."""
        parameters = {"replica": replica, "dp_rank": dp_rank, "first": first, "last": last}
        which = (
            "replica = {replica:String} AND dp_rank = {dp_rank:UInt16} "
            "AND window >= {first:DateTime('UTC')} AND window <= {last:DateTime('UTC')}"
        )
        yield from self._rows(OccupancyRow, which, parameters)
        yield from self._rows(FlowRow, which, parameters)

    def asked(self, statement: str, parameters: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the rows of a statement, in which `{database}` is the database."""
        statement = statement.replace("{database}", self._store.database)
        with store_unavailable(self._store):
            for row in self._client.query(statement, parameters=parameters).named_results():
                yield {name: _aware(value) for name, value in row.items()}

    def minutes_due(self) -> Iterator[tuple[str, datetime]]:
        """Yield family and start of the minutes that a worker has noted and not recomputed since."""
        statement = (
            f"SELECT DISTINCT family, minute FROM {self._store.database}.rollups_due "
            "GROUP BY worker, family, minute HAVING max(noted) > max(done)"
        )
        with store_unavailable(self._store):
            for family, minute in self._client.query(statement).result_rows:
                yield family, _aware(minute)

    def close(self) -> None:
        """Disconnect."""
        self._client.close()

    def _rows(self, kind: type[_Kind], which: str, parameters: dict[str, Any]) -> Iterator[_Kind]:
        """Yield the winning rows of a table for which a condition holds."""
        columns = kind.__struct_fields__
        shared: dict[Any, Any] = {}
        table = f"{self._store.database}.{kind.TABLE}"  # type: ignore[attr-defined]
        statement = f"SELECT {', '.join(columns)} FROM {table} FINAL WHERE {which}"
        with (
            store_unavailable(self._store),
            self._client.query_row_block_stream(statement, parameters=parameters) as blocks,
        ):
            for block in blocks:
                for values in block:
                    plain = [_shared(value, shared) for value in values]
                    yield kind(**dict(zip(columns, plain, strict=True)))


def _shared(value: Any, shared: dict[Any, Any]) -> Any:
    """Return a value as `_aware` does; equal strings and times of all rows share one object."""
    if type(value) is not str and not isinstance(value, datetime):
        return _aware(value)
    found = shared.get(value)
    if found is None:
        found = shared[value] = _aware(value)
    return found


def _aware(value: Any) -> Any:
    """Return times with their zone, which is UTC in the tables, and tuples as lists."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=timezone.utc)
    return list(value) if isinstance(value, tuple) else value
