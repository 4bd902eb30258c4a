"""Where tables and views are: on one server, or on the shards of a cluster. Pure.

On a cluster each table is in the database `…_local` of every node, and the database itself has a Distributed
table of the same name, the only one that views, inserts and queries use. Materialized views are in `…_local`.
"""

from __future__ import annotations

import re

from pipeline.clickhouse.rights import LOCAL
from schemas.settings import ClickHouse

_ENGINE = re.compile(r"\{engine:(\w+)\(([^)]*)\)\}")
_STATEMENT = re.compile(
    r"^(?P<kind>CREATE TABLE|CREATE MATERIALIZED VIEW|CREATE VIEW|DROP VIEW|ALTER TABLE)"
    r"(?: IF (?:NOT )?EXISTS)? \{database\}\.(?P<name>\w+)",
    re.M,
)
_SORTING_KEY = re.compile(r"^ORDER BY ([^;\n]+)", re.M)
_SHARDED_BY = ("replica", "hash_domain", "model", "worker", "first_block", "name")
"""The first of these in a table's sorting key decides on the shard: rows with one key are on the same one."""

SETTINGS = {
    # An insert is done when all shards have their rows, so that the next reader sees them.
    "distributed_foreground_insert": 1,
    # Rows are read from the replica that they were written to: the others have them a moment later.
    "load_balancing": "in_order",
    "prefer_localhost_replica": 0,
    # The right side of IN and JOIN is gathered from all shards first: each shard has only its own part.
    "prefer_global_in_and_join": 1,
}
"""Settings of a client on a cluster."""


def databases(store: ClickHouse) -> list[str]:
    """Return the statements that make the databases."""
    if not store.cluster:
        return [f"CREATE DATABASE IF NOT EXISTS {store.database}"]
    made = []
    for name in (store.database, store.database + LOCAL):
        statement = f"CREATE DATABASE IF NOT EXISTS {name} ON CLUSTER '{store.cluster}'"
        if store.engines == "replicated-database":
            statement += f" ENGINE = Replicated('/clickhouse/databases/{name}', '{{shard}}', '{{replica}}')"
        made.append(statement)
    return made


def placed(statement: str, store: ClickHouse) -> list[str]:
    """Return the statements to which a statement expands under these settings."""
    if not store.cluster:
        return [_in(store.database, _ENGINE.sub(r"\1(\2)", statement))]
    found = _STATEMENT.search(statement)
    if found is None:
        raise ValueError(f"no statement that has a place on a cluster: {statement[:80]}")
    local = store.database + LOCAL
    everywhere = "" if store.engines == "replicated-database" else f" ON CLUSTER '{store.cluster}'"
    name = found["name"]

    def on_cluster(text: str) -> str:
        return text[: found.end()] + everywhere + text[found.end() :]

    if found["kind"] in ("CREATE VIEW", "DROP VIEW"):
        return [_in(store.database, on_cluster(statement))]
    if found["kind"] == "CREATE MATERIALIZED VIEW":
        return [_in(local, on_cluster(statement))]
    if found["kind"] == "ALTER TABLE":
        return [_in(each, on_cluster(statement)) for each in (local, store.database)]
    return [
        _in(local, _ENGINE.sub(lambda engine: _engine(store, *engine.groups()), on_cluster(statement))),
        f"CREATE TABLE IF NOT EXISTS {store.database}.{name}{everywhere} AS {local}.{name}\n"
        f"ENGINE = Distributed('{store.cluster}', {local}, {name}, cityHash64({sharded_by(statement)}))",
    ]


def sharded_by(statement: str) -> str:
    """Return the column of a table's sorting key that decides on the shard of its rows."""
    found = _SORTING_KEY.findall(statement)
    words = set(re.findall(r"\w+", found[-1])) if found else set()
    for column in _SHARDED_BY:
        if column in words:
            return column
    raise ValueError(f"no column of the sorting key decides on the shard: {statement[:80]}")


def _engine(store: ClickHouse, name: str, arguments: str) -> str:
    if store.engines == "plain":
        return f"{name}({arguments})"
    if store.engines == "replicated-database":
        return f"Replicated{name}({arguments})"
    # By name, not by UUID, so that a node that was lost finds its tables again.
    path = "'/clickhouse/tables/{shard}/@database@/{table}', '{replica}'"
    return f"Replicated{name}({', '.join(filter(None, (path, arguments)))})"


def _in(database: str, text: str) -> str:
    # ClickHouse's own macro has the same name as our placeholder.
    return text.replace("{database}", database).replace("@database@", "{database}").strip()
