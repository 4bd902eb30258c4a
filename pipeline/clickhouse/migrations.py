"""Brings a database up to date: applies each numbered migration once, in order, and remakes changed views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from pipeline.clickhouse.client import connect, first_line, store_unavailable
from pipeline.clickhouse.layout import databases, placed
from pipeline.clickhouse.sql_files import APPLIED, DIRECTORY, Migration, migrations, outdated
from pipeline.clickhouse.view_files import RECORDED, View, gone, views
from pipeline.errors import DatabaseOutdated, MigrationChanged, MigrationRefused, StoreUnavailable
from schemas.settings import ClickHouse, Settings

_DROPPED = "0" * 64
"""Recorded in place of the digest of a view that was dropped."""
_VIEWS_THERE = "SELECT DISTINCT name FROM {tables} WHERE database = {{name:String}} AND engine = 'View'"


def apply(
    settings: Settings,
    progress: Callable[[str], None] | None = None,
    *,
    directory: Path = DIRECTORY,
) -> list[str]:
    """Create the database, apply what is missing, make views that are new or changed; return their names.

    Blocks. Every statement is idempotent, so what stopped half-way is applied again. Raises DatabaseOutdated
    or MigrationChanged before anything is done, MigrationRefused, StoreUnavailable.
    """
    say = progress or (lambda line: None)
    store = settings.clickhouse
    client = connect(store)
    try:
        with store_unavailable(store):
            shards = _shards(client, store)
            for statement in (*databases(store), *placed(APPLIED, store)):
                client.command(statement, settings=_patience(store))
            applied = _applied(client, store)
        files = migrations(directory)
        _require_known(applied, files, store)
        missing = [migration for migration in files if migration.name not in applied]
        for migration in missing:
            _run(client, store, migration, shards)
            say(f"applied {migration.name}")
        all_views = views(directory)
        made = [view for view in all_views if applied.get(view.recorded) != view.sha256]
        dropped = gone(applied, all_views)
        if made or dropped:
            _remake(client, store, made, dropped, shards)
            say(f"made {len(made)} views, dropped {len(dropped)}")
        return [*(migration.name for migration in missing), *(view.recorded for view in made)]
    finally:
        client.close()


def missing(store: ClickHouse, *, with_views: bool = True) -> list[str]:
    """Return the names of migrations that were not applied; if none, of views that are not up to date.

    Blocks. Raises StoreUnavailable, also when the database does not exist.
    """
    client = connect(store)
    try:
        with store_unavailable(store):
            applied = _applied(client, store)
    finally:
        client.close()
    return lacking(applied, with_views=with_views)


def lacking(applied: dict[str, str], *, with_views: bool = True) -> list[str]:
    """Return the same as `missing`, from {name: digest} of what was applied."""
    tables = [migration.name for migration in migrations() if migration.name not in applied]
    if tables or not with_views:
        return tables
    return [view.recorded for view in views() if applied.get(view.recorded) != view.sha256]


def _require_known(applied: dict[str, str], files: Sequence[Migration], store: ClickHouse) -> None:
    """Raises DatabaseOutdated, MigrationChanged."""
    if names := outdated((name for name in applied if not name.startswith(RECORDED)), files):
        raise DatabaseOutdated(store.database, names)
    for migration in files:
        if applied.get(migration.name, migration.sha256) != migration.sha256:
            raise MigrationChanged(migration.name)


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
    """Return settings with which a statement for all nodes fails before the client stops waiting for it."""
    return {"distributed_ddl_task_timeout": max(1, int(store.timeout_seconds) - 1)} if store.cluster else None


def _applied(client: Client, store: ClickHouse) -> dict[str, str]:
    """Return {name: digest} of what was applied on every shard."""
    query = f"SELECT name, sha256 FROM {store.database}.schema_migrations FINAL"
    if store.cluster:
        query += " GROUP BY name, sha256 HAVING uniqExact(_shard_num) = {shards:UInt32}"
    rows = client.query(query, parameters={"shards": _shards(client, store)}).result_rows
    return known(rows)


def known(rows: Iterable[Sequence[Any]]) -> dict[str, str]:
    """Return {name: digest} from rows of `schema_migrations`, without dropped views."""
    texts = {name: sha256.decode() if isinstance(sha256, bytes) else sha256 for name, sha256 in rows}
    return {name: sha256 for name, sha256 in texts.items() if sha256 != _DROPPED}


def _run(client: Client, store: ClickHouse, migration: Migration, shards: int) -> None:
    for number, piece in enumerate(migration.statements, 1):
        with _refused(store, f"statement {number} of migration {migration.name}"):
            for statement in placed(piece, store):
                client.command(statement, settings=_patience(store))
    _note(client, store, [(migration.name, migration.sha256)], shards)


def _remake(
    client: Client, store: ClickHouse, made: Sequence[View], dropped: Sequence[str], shards: int
) -> None:
    """Drop views and make others, in this order; record it when all are there."""
    there = _views_there(client, store)
    for name in dropped:
        _drop(client, store, name)
    for view in made:
        # Replacing it in one statement would need rights with which a user can drop and fill tables.
        if view.name in there:
            _drop(client, store, view.name)
        with _refused(store, f"view {view.name}"):
            for statement in placed(view.text, store):
                client.command(statement, settings=_patience(store))
    _note(client, store, [(view.recorded, view.sha256) for view in made], shards)
    _note(client, store, [(RECORDED + name, _DROPPED) for name in dropped], shards)


def _drop(client: Client, store: ClickHouse, name: str) -> None:
    with _refused(store, f"to drop view {name}"):
        for statement in placed(f"DROP VIEW IF EXISTS {{database}}.{name}", store):
            client.command(statement, settings=_patience(store))


def _views_there(client: Client, store: ClickHouse) -> set[str]:
    tables = f"clusterAllReplicas('{store.cluster}', system.tables)" if store.cluster else "system.tables"
    query = _VIEWS_THERE.format(tables=tables)
    with store_unavailable(store):
        rows = client.query(query, parameters={"name": store.database}).result_rows
    return {name for (name,) in rows}


@contextmanager
def _refused(store: ClickHouse, what: str) -> Iterator[None]:
    """Turn a refused statement into MigrationRefused, and a missing answer into StoreUnavailable."""
    with store_unavailable(store):
        try:
            yield
        except ClickHouseError as error:
            if getattr(error, "code", None) is None:
                raise
            raise MigrationRefused(what, first_line(error)) from error


def _note(client: Client, store: ClickHouse, rows: Sequence[tuple[str, str]], shards: int) -> None:
    """Record on every shard what was applied, so that one that was added later is found to lack it."""
    if not rows:
        return
    with store_unavailable(store):
        for shard in range(1, shards + 1) if store.cluster else (None,):
            client.insert(
                "schema_migrations",
                rows,
                column_names=["name", "sha256"],
                database=store.database,
                settings=None if shard is None else {"insert_shard_id": shard},
            )
