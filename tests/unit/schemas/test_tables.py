"""Row structs are the columns of the ClickHouse tables, and the reader of the migrations reads them right."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import types as python_types
from datetime import datetime
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from pipeline.clickhouse.views import IN_UTC, INNER
from pipeline.generated.pages.tables import column_meanings, row_types, tables_and_views, tables_page
from pipeline.generated.sql_tables import parse
from schemas.settings import ClickHouse
from schemas.trust import TRUST_ORDER, Trust
from tests.support.sql_statements import everything

TABLES, VIEWS = tables_and_views()
ROWS = row_types()

ENGINE_SIDE = """
import json, re, sys
from chdb import session
store = session.Session()
store.query("CREATE DATABASE kvlens")
for statements in json.load(sys.stdin):
    for statement in statements:
        store.query(statement)
columns = store.query(
    "SELECT table, groupArray((name, type)) AS columns FROM (SELECT table, name, type FROM system.columns "
    "WHERE database = 'kvlens' ORDER BY table, position) GROUP BY table",
    "JSON",
)
tables = store.query(
    "SELECT name, engine_full, sorting_key, partition_key FROM system.tables WHERE database = 'kvlens'",
    "JSON",
)
print(json.dumps([json.loads(str(columns))["data"], json.loads(str(tables))["data"]]))
"""


@pytest.fixture(scope="module")
def engine() -> tuple[dict[str, list[list[str]]], dict[str, dict[str, str]]]:
    """(columns by table, table facts by table) as ClickHouse itself reports them after all migrations.

    It has also run the queries that the page shows.
    """
    made = everything(ClickHouse(database="kvlens"))
    examples = re.findall(r"```sql\n(.*?)```", tables_page().decode(), re.S)
    assert examples
    done = subprocess.run(
        [sys.executable, "-c", ENGINE_SIDE],
        input=json.dumps([made, examples]),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    columns, tables = json.loads(done.stdout)
    return {row["table"]: row["columns"] for row in columns}, {row["name"]: row for row in tables}


def test_every_row_struct_has_its_table() -> None:
    assert set(ROWS) <= set(TABLES)


@pytest.mark.parametrize("table", ROWS)
def test_fields_are_the_columns_in_the_same_order(table: str) -> None:
    assert list(ROWS[table].__struct_fields__) == list(TABLES[table].columns)


@pytest.mark.parametrize("table", ROWS)
def test_types_agree(table: str) -> None:
    hints = get_type_hints(ROWS[table])
    for name, column in TABLES[table].columns.items():
        assert column.startswith(column_types(hints[name])), (name, hints[name], column)


def column_types(hint: Any) -> tuple[str, ...]:
    if get_origin(hint) in (Union, python_types.UnionType):
        (inner,) = [part for part in get_args(hint) if part is not type(None)]
        return tuple(f"Nullable({kind}" for kind in column_types(inner))
    if hint == Trust:
        return ("Enum8('complete' = 1, 'partial' = 2, 'degraded' = 3)",)
    if get_origin(hint) is Literal:
        return ("Enum8", "LowCardinality(String)")
    if get_origin(hint) is list:
        return tuple(f"Array({kind}" for kind in column_types(get_args(hint)[0]))
    return {
        bool: ("Bool",),
        int: ("UInt", "Int"),
        float: ("Float64",),
        str: ("LowCardinality(String)", "String"),
        datetime: ("DateTime",),
    }[hint]


def test_the_worst_trust_is_the_greatest_enum_value() -> None:
    order = ", ".join(f"'{trust}' = {number}" for number, trust in enumerate(TRUST_ORDER, 1))
    for table in ROWS:
        if "trust" in TABLES[table].columns:
            assert TABLES[table].columns["trust"] == f"Enum8({order})"


@pytest.mark.parametrize("table", ROWS)
def test_newest_version_wins_by_key(table: str) -> None:
    assert TABLES[table].engine == "ReplacingMergeTree(version)"
    assert list(TABLES[table].columns)[-1] == "version"
    key = [part.strip() for part in TABLES[table].key.strip("()").split(",")]
    # `models`, `prefix_names`, `fleet_settings` and `hash_groups` hold only what is so now.
    last = {"window", "time", "since", "incarnation", "model", "shard", "first_block", "name", "request_id"}
    assert key[-1] in last


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_explained(table: str) -> None:
    meanings = column_meanings(table)
    assert [name for name in TABLES[table].columns if not meanings.get(name)] == []


def test_columns_are_what_clickhouse_makes_of_the_migrations(engine: Any) -> None:
    columns, _ = engine
    for name, definition in TABLES.items():
        assert [tuple(column) for column in columns[name]] == list(definition.columns.items())


def test_keys_and_engines_are_what_clickhouse_makes_of_the_migrations(engine: Any) -> None:
    columns, facts = engine
    own = {name for name in facts if not name.endswith(IN_UTC)}
    assert own == {*TABLES, *VIEWS}
    assert own - set(columns) <= set(VIEWS)
    asked = {name.removesuffix(IN_UTC) for name in set(facts) - own}
    assert {name for name in asked if not name.endswith(INNER)} <= set(VIEWS)
    for name, definition in TABLES.items():
        assert facts[name]["sorting_key"] == definition.key.removeprefix("(").removesuffix(")")
        assert facts[name]["partition_key"] == definition.partition
        assert facts[name]["engine_full"].startswith(definition.engine.removesuffix("()"))


def test_reading_columns_comments_and_additions() -> None:
    tables, views = parse(
        [
            """-- About the file.

            -- What it says;
            -- in two lines.
            CREATE TABLE IF NOT EXISTS {database}.a
            (
                t DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)), -- a comment, with comma
                e Enum8('x;y' = 1, 'it''s)' = 2) DEFAULT 'x;y',
                INDEX i e TYPE minmax
            )
            ENGINE = {engine:ReplacingMergeTree(t)}
            ORDER BY (toStartOfHour(t), e)
            TTL t + INTERVAL 1 DAY DELETE;
            CREATE VIEW {database}.v AS
            SELECT * FROM {database}.a WHERE t >= {from:DateTime} AND t < {to: DateTime};
            """,
            "ALTER TABLE {database}.a ADD COLUMN IF NOT EXISTS n Nullable(UInt64) AFTER t;",
        ]
    )
    assert tables["a"].columns == {
        "t": "DateTime64(3, 'UTC')",
        "n": "Nullable(UInt64)",
        "e": "Enum8('x;y' = 1, 'it''s)' = 2)",
    }
    assert tables["a"].comment == "What it says; in two lines."
    assert tables["a"].engine == "ReplacingMergeTree(t)"
    assert tables["a"].key == "(toStartOfHour(t), e)"
    assert tables["a"].ttl == "t + INTERVAL 1 DAY DELETE"
    assert views["v"].parameters == {"from": "DateTime", "to": "DateTime"}
    assert views["v"].table == "a"


def test_a_rollup_has_the_columns_of_its_table_in_the_same_order() -> None:
    for name, definition in TABLES.items():
        if name.endswith(("_1m", "_1h")):
            base = {
                column: kind
                for column, kind in TABLES[f"{name[:-3]}_10s"].columns.items()
                if column != "shard"  # added up
            }
            assert [column for column in definition.columns if column in base] == list(base)
            for column, kind in base.items():
                of_the_row = column in definition.key or column == "version"
                listed = name.startswith("hot_prefixes") and not of_the_row
                assert definition.columns[column] == (f"Array({kind})" if listed else kind)
