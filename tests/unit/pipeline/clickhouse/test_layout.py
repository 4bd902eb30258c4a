"""What a statement of a migration becomes on one server and on a cluster."""

from __future__ import annotations

import pytest

from pipeline.clickhouse.layout import databases, placed, sharded_by
from schemas.settings import ClickHouse
from tests.support.sql_statements import everything, tables

TABLE = """\
-- What is kept.
CREATE TABLE IF NOT EXISTS {database}.flow_10s
(
    window DateTime('UTC'),
    replica LowCardinality(String),
    version UInt64
)
ENGINE = {engine:ReplacingMergeTree(version)}
ORDER BY (toStartOfHour(window), replica, window)"""
DISTRIBUTED = (
    "CREATE TABLE IF NOT EXISTS d.flow_10s{everywhere} AS d_local.flow_10s\n"
    "ENGINE = Distributed('c', d_local, flow_10s, cityHash64(replica))"
)


def test_on_one_server_only_names_are_filled_in() -> None:
    assert databases(ClickHouse(database="d")) == ["CREATE DATABASE IF NOT EXISTS d"]
    [statement] = placed(TABLE, ClickHouse(database="d"))
    assert statement == TABLE.replace("{database}", "d").replace(
        "{engine:ReplacingMergeTree(version)}", "ReplacingMergeTree(version)"
    )


@pytest.mark.parametrize(
    ("engines", "everywhere", "engine"),
    [
        ("plain", " ON CLUSTER 'c'", "ReplacingMergeTree(version)"),
        (
            "replicated",
            " ON CLUSTER 'c'",
            "ReplicatedReplacingMergeTree("
            "'/clickhouse/tables/{shard}/{database}/{table}', '{replica}', version)",
        ),
        ("replicated-database", "", "ReplicatedReplacingMergeTree(version)"),
    ],
)
def test_on_a_cluster_a_table_is_on_every_node_under_a_distributed_one(
    engines: str, everywhere: str, engine: str
) -> None:
    store = ClickHouse(database="d", cluster="c", engines=engines)  # type: ignore[arg-type]
    table, distributed = placed(TABLE, store)
    assert f"CREATE TABLE IF NOT EXISTS d_local.flow_10s{everywhere}\n(" in table
    assert f"ENGINE = {engine}\n" in table
    assert distributed == DISTRIBUTED.replace("{everywhere}", everywhere)


def test_views_stay_and_materialised_views_and_columns_follow_the_tables() -> None:
    store = ClickHouse(database="d", cluster="c")
    assert placed("CREATE VIEW {database}.v AS SELECT * FROM {database}.t FINAL", store) == [
        "CREATE VIEW d.v ON CLUSTER 'c' AS SELECT * FROM d.t FINAL"
    ]
    assert placed("DROP VIEW IF EXISTS {database}.v", store) == ["DROP VIEW IF EXISTS d.v ON CLUSTER 'c'"]
    view = "CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.v TO {database}.t AS SELECT 1 FROM {database}.s"
    assert placed(view, store) == [
        "CREATE MATERIALIZED VIEW IF NOT EXISTS d_local.v ON CLUSTER 'c' TO d_local.t "
        "AS SELECT 1 FROM d_local.s"
    ]
    column = "ALTER TABLE {database}.t ADD COLUMN IF NOT EXISTS a UInt8"
    assert placed(column, store) == [
        f"ALTER TABLE {each}.t ON CLUSTER 'c' ADD COLUMN IF NOT EXISTS a UInt8" for each in ("d_local", "d")
    ]


@pytest.mark.parametrize("engines", ["plain", "replicated", "replicated-database"])
def test_every_statement_has_a_place(engines: str) -> None:
    store = ClickHouse(database="d", cluster="c", engines=engines)  # type: ignore[arg-type]
    for statement in everything(store):
        assert "{engine" not in statement
        assert ("ON CLUSTER 'c'" in statement) == (engines != "replicated-database")


@pytest.mark.parametrize(
    "statement", ["DROP TABLE {database}.t", "CREATE TABLE IF NOT EXISTS {database}.t (a UInt8)\nORDER BY a"]
)
def test_a_statement_without_a_place_is_refused(statement: str) -> None:
    with pytest.raises(ValueError, match=r"no statement|no column"):
        placed(statement, ClickHouse(cluster="c"))


def test_what_decides_on_the_shard_is_in_every_sorting_key() -> None:
    made = [piece for piece in tables() if "\nCREATE TABLE" in f"\n{piece}"]
    assert {sharded_by(table) for table in made} == {
        "replica", "hash_domain", "model", "worker", "first_block", "name",
    }  # fmt: skip
