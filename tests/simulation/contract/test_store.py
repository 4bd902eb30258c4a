"""The dicts in place of ClickHouse keep the rows that ClickHouse keeps: the same cases over both."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime, timezone
from typing import Any

import msgspec
import pytest

from connectors.kafka.topics import partition_of
from pipeline.clickhouse import client
from pipeline.clickhouse.writer import Tables
from pipeline.verify import store as verify_store
from pipeline.verify.store import StoredTables
from schemas.fleet_rows import RedundancyRow
from schemas.rows import OccupancyRow, SourceRow
from schemas.setting_rows import HashGroupRow
from schemas.settings import ClickHouse, Settings
from tests.simulation.store import Store, StoreClient

AT = datetime(2027, 1, 15, 8, 0, 10, tzinfo=timezone.utc)


def row(kind: type[Any], **values: Any) -> Any:
    """Return a row of a kind with these values, and something in its other columns."""
    fields = {}
    for field in msgspec.structs.fields(kind):
        if field.name in values or field.required is False:
            continue
        shape = msgspec.inspect.type_info(field.type)
        fields[field.name] = _something(shape)
    return kind(**fields, **values)


def _something(shape: Any) -> Any:
    match shape:
        case msgspec.inspect.IntType():
            return 0
        case msgspec.inspect.StrType():
            return ""
        case msgspec.inspect.BoolType():
            return False
        case msgspec.inspect.DateTimeType():
            return AT
        case msgspec.inspect.FloatType():
            return 0.0
        case msgspec.inspect.LiteralType():
            return shape.values[0]
        case msgspec.inspect.ListType():
            return []
        case msgspec.inspect.UnionType():
            return _something(shape.types[0])
    raise AssertionError(shape)


def written() -> list[list[Any]]:
    """Return inserts: newer, older and equal versions of rows of several replicas and shards."""
    rng = random.Random(1)
    return [
        [
            kind(rng)
            for kind in rng.choices(
                (
                    lambda rng: row(
                        OccupancyRow,
                        replica=f"r{rng.randrange(4)}",
                        medium="gpu",
                        trust="complete",
                        blocks=rng.randrange(9),
                        version=rng.randrange(5),
                    ),
                    lambda rng: row(
                        SourceRow,
                        replica=f"r{rng.randrange(4)}",
                        trust="partial",
                        incarnation=rng.randrange(2),
                        last_seq=rng.randrange(9),
                        version=rng.randrange(5),
                    ),
                    lambda rng: row(
                        RedundancyRow,
                        shard=rng.randrange(2),
                        medium="gpu",
                        trust="complete",
                        owners_1=rng.randrange(9),
                        version=rng.randrange(5),
                    ),
                    lambda rng: row(
                        HashGroupRow,
                        shard=rng.randrange(2),
                        replica=f"r{rng.randrange(4)}",
                        version=rng.randrange(5),
                    ),
                ),
                k=6,
            )
        ]
        for _ in range(12)
    ]


def kept(settings: ClickHouse) -> dict[str, list[Any]]:
    """Write the rows as a worker does and read them as the recount does."""
    tables = Tables(settings)

    async def write() -> None:
        for rows in written():
            await tables.insert(rows)

    asyncio.run(write())
    tables.close()
    stored = StoredTables(settings)
    found = {
        **{f"partition {number}": [*stored.rows_of_partition(number, 3)] for number in range(3)},
        **{f"shard {number}": [*stored.rows_of_shard(number)] for number in range(2)},
    }
    stored.close()
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


def test_both_keep_the_same_rows(own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    real = own.clickhouse
    of_clickhouse = kept(real)
    lists = Store(random.Random(1))
    for module in (client, verify_store):
        monkeypatch.setattr(module, "connect", lambda settings: StoreClient(lists))
    of_lists = kept(real)
    assert of_lists == of_clickhouse
    assert sum(map(len, of_lists.values())) > 15
    assert len(of_lists[f"partition {partition_of('r0', 3)}"]) > 0
