"""Applies the numbered SQL files of `schemas/clickhouse`, each once, in order."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

import schemas
from pipeline.clickhouse.client import connect, first_line, store_unavailable
from pipeline.clickhouse.layout import databases, placed
from pipeline.clickhouse.views import for_readers
from pipeline.errors import MigrationChanged, MigrationRefused, MigrationUnreleased, StoreUnavailable
from schemas.settings import ClickHouse, Settings

DIRECTORY = Path(schemas.__file__).parent / "clickhouse"
_FILE = re.compile(r"\d{4}_\w+\.sql")
_ENGINE = re.compile(r"\{engine:(\w+)\(")
_FILLED = re.compile(r"CREATE MATERIALIZED VIEW [^(]*? TO \{database\}\.(\w+)")
# A quoted string, a comment, or the end of a statement: only the last one splits.
_TOKEN = re.compile(r"'(?:[^'\\]|\\.|'')*'|--[^\n]*|(;)")

_APPLIED = """
CREATE TABLE IF NOT EXISTS {database}.schema_migrations
(
    name String,
    sha256 FixedString(64),
    applied_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = {engine:ReplacingMergeTree(applied_at)}
ORDER BY name
"""


@dataclass(frozen=True)
class Migration:
    """One file: its name, its text and the text's digest (hex)."""

    name: str
    text: str
    sha256: str


def migrations(directory: Path = DIRECTORY) -> list[Migration]:
    """Return the files in the order of their numbers."""
    found = []
    for path in sorted(path for path in directory.iterdir() if _FILE.fullmatch(path.name)):
        text = path.read_text("utf-8")
        found.append(Migration(path.name, text, hashlib.sha256(text.encode()).hexdigest()))
    return found


def engines(directory: Path = DIRECTORY) -> set[str]:
    """Return the table engines that the files name."""
    found = {match[1] for match in _ENGINE.finditer(_APPLIED)}
    return found.union(
        *({match[1] for match in _ENGINE.finditer(each.text)} for each in migrations(directory))
    )


def filled(directory: Path = DIRECTORY) -> set[str]:
    """Return the tables that materialized views write."""
    return set().union(*(_FILLED.findall(each.text) for each in migrations(directory)))


def unreleased(applied: Iterable[str], files: Sequence[Migration]) -> tuple[str, ...]:
    """Return the applied names that no release knows.

    A newer kvlens only adds files after the last one of `files`. An unknown name before that one comes from a
    set of files that was replaced, and so do all other unknown names.
    """
    unknown = sorted(set(applied) - {migration.name for migration in files})
    return tuple(unknown) if unknown and files and unknown[0] < files[-1].name else ()


def statements(text: str, database: str) -> list[str]:
    """Split as in `split`; return what is sent to one server."""
    return [sent for piece in split(text) for sent in _sent(piece, ClickHouse(database=database))]


def split(text: str) -> list[str]:
    """Split at semicolons outside strings and comments."""
    pieces, start = [], 0
    for token in _TOKEN.finditer(text):
        if token[1]:
            pieces.append(text[start : token.start()])
            start = token.end()
    pieces.append(text[start:])
    return [piece for piece in pieces if _says_something(piece)]


def _sent(piece: str, store: ClickHouse) -> list[str]:
    return [statement for each in for_readers(piece) for statement in placed(each, store)]


def _says_something(piece: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith("--") for line in piece.splitlines())


def apply(
    settings: Settings,
    progress: Callable[[str], None] | None = None,
    *,
    directory: Path = DIRECTORY,
) -> list[str]:
    """Create the database and apply what is missing; return the names applied now.

    Blocks. Every statement is idempotent, so a file that stopped half-way is applied again. Raises
    MigrationUnreleased or MigrationChanged before anything is done, MigrationRefused, StoreUnavailable.
    """
    say = progress or (lambda line: None)
    store = settings.clickhouse
    client = connect(store)
    try:
        with store_unavailable(store):
            shards = _shards(client, store)
            for statement in (*databases(store), *placed(_APPLIED, store)):
                client.command(statement, settings=_patience(store))
            applied = _applied(client, store)
        files = migrations(directory)
        if names := unreleased(applied, files):
            raise MigrationUnreleased(store.database, names)
        for migration in files:
            if applied.get(migration.name, migration.sha256) != migration.sha256:
                raise MigrationChanged(migration.name)
        missing = [migration for migration in files if migration.name not in applied]
        for migration in missing:
            _run(client, store, migration, shards)
            say(f"applied {migration.name}")
        return [migration.name for migration in missing]
    finally:
        client.close()


def missing(store: ClickHouse) -> list[str]:
    """Return the names of the files that were not applied.

    Blocks. Raises StoreUnavailable, also when the database does not exist.
    """
    client = connect(store)
    try:
        with store_unavailable(store):
            applied = _applied(client, store)
    finally:
        client.close()
    return [migration.name for migration in migrations() if migration.name not in applied]


def _shards(client: Client, store: ClickHouse) -> int:
    """Return how many shards the cluster has; 0 without one."""
    if not store.cluster:
        return 0
    query = "SELECT uniqExact(shard_num) FROM system.clusters WHERE cluster = {name:String}"
    ((shards,),) = client.query(query, parameters={"name": store.cluster}).result_rows
    if not shards:
        advice = "see SELECT cluster FROM system.clusters, and correct clickhouse.cluster"
        raise StoreUnavailable(store.url, f"it knows no cluster {store.cluster}", advice=advice, heals=False)
    return int(shards)


def _patience(store: ClickHouse) -> dict[str, Any] | None:
    """Settings with which a statement for all nodes fails no later than its answer is awaited."""
    return {"distributed_ddl_task_timeout": max(1, int(store.timeout_seconds) - 1)} if store.cluster else None


def _applied(client: Client, store: ClickHouse) -> dict[str, str]:
    """Return name and digest of what every shard has."""
    query = f"SELECT name, sha256 FROM {store.database}.schema_migrations FINAL"
    if store.cluster:
        query += " GROUP BY name, sha256 HAVING uniqExact(_shard_num) = {shards:UInt32}"
    rows = client.query(query, parameters={"shards": _shards(client, store)}).result_rows
    return {name: sha256.decode() if isinstance(sha256, bytes) else sha256 for name, sha256 in rows}


def _run(client: Client, store: ClickHouse, migration: Migration, shards: int) -> None:
    with store_unavailable(store):
        for number, piece in enumerate(split(migration.text), 1):
            try:
                for statement in _sent(piece, store):
                    client.command(statement, settings=_patience(store))
            except ClickHouseError as error:
                if getattr(error, "code", None) is None:
                    raise
                raise MigrationRefused(migration.name, number, first_line(error)) from error
        # One row on every shard, so that each node knows, and one that was added is found to lack it.
        for shard in range(1, shards + 1) if store.cluster else (None,):
            client.insert(
                "schema_migrations",
                [[migration.name, migration.sha256]],
                column_names=["name", "sha256"],
                database=store.database,
                settings=None if shard is None else {"insert_shard_id": shard},
            )
