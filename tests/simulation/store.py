"""ClickHouse as dicts: tables in which, of rows with one key, the highest version wins.

`tests/simulation/contract` runs the same cases over this and over the real engine.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Literal, get_args

from clickhouse_connect.driver.exceptions import OperationalError

from connectors.kafka.topics import partition_of
from pipeline.verify.keys import KEYS
from schemas.rows import Row

Trouble = Literal["", "refuses", "answers not"]
"""What is wrong with the store: it takes nothing, or takes it and does not say so."""

_KINDS = {kind.TABLE: kind for kind in get_args(Row) if kind in KEYS}
_partition_of = lru_cache(maxsize=1 << 12)(partition_of)
_ASKED = re.compile(r"SELECT (?P<columns>.+) FROM \w+\.(?P<table>\w+) FINAL WHERE (?P<which>.+)")


class Store:
    """All tables of one database."""

    def __init__(self, rng: random.Random) -> None:
        self.trouble: Trouble = ""
        self._rng = rng
        self._tables: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Take rows. Raises OperationalError, when some or all of them may have been taken."""
        if self.trouble == "refuses":
            raise OperationalError("the simulated store takes nothing")
        kind = _KINDS.get(table)
        if kind is not None:
            held = self._tables.setdefault(table, {})
            for row in rows:
                key = tuple(row[column] for column in KEYS[kind])
                before = held.get(key)
                if before is None or row["version"] >= before["version"]:
                    held[key] = dict(row)
        if self.trouble == "answers not" and self._rng.random() < 0.7:
            raise OperationalError("the simulated store does not answer")

    def select(self, statement: str, parameters: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
        """Answer the statements of `pipeline/verify/store.py`."""
        asked = _ASKED.fullmatch(statement)
        assert asked is not None, statement
        columns = asked["columns"].split(", ")
        for row in self._tables.get(asked["table"], {}).values():
            if "kafkaMurmurHash" in asked["which"]:
                of = row["replica"] if "replica" in asked["which"] else row["request_id"]
                fits = _partition_of(of, parameters["partitions"]) == parameters["partition"]
            else:
                fits = row["shard"] == parameters["shard"]
            if fits:
                yield tuple(row[column] for column in columns)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the winning rows of a table."""
        return [*self._tables.get(table, {}).values()]


class StoreClient:
    """As much of clickhouse-connect's client as the worker and the recount use."""

    def __init__(self, store: Store, inserted: Callable[[], None] = lambda: None) -> None:
        """`inserted` is told when the store has taken rows."""
        self._store, self._inserted = store, inserted

    def create_insert_context(self, table: str, column_names: Sequence[str], **options: Any) -> Any:
        return SimpleNamespace(column_types=[None] * len(column_names))

    def insert(
        self, table: str, data: Sequence[Sequence[Any]], column_names: Sequence[str], **options: Any
    ) -> None:
        self._store.insert(
            table, [dict(zip(column_names, values, strict=True)) for values in zip(*data, strict=True)]
        )
        self._inserted()

    @contextmanager
    def query_row_block_stream(self, statement: str, parameters: Mapping[str, Any]) -> Iterator[Any]:
        yield iter([list(self._store.select(statement, parameters))])

    def close(self) -> None: ...
