"""Brings a database up to date: applies each numbered migration once, in order, and remakes changed views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from pipeline.clickhouse.client import connect, connected, first_line, store_unavailable
from pipeline.clickhouse.layout import databases, placed
from pipeline.clickhouse.sql_files import APPLIED, DIRECTORY, Migration, migrations, outdated
from pipeline.clickhouse.view_files import RECORDED, removed, views
from pipeline.errors import DatabaseOutdated, MigrationChanged, MigrationRefused, StoreUnavailable
from schemas.settings import ClickHouse, Settings

_DROPPED = "0" * 64
"""Recorded in place of the digest of a view that was dropped."""
_VIEWS_THERE = "SELECT DISTINCT name FROM {tables} WHERE database = {{name:String}} AND engine = 'View'"


def apply(
    settings: Settings, progress: Callable[[str], None] | None = None, *, directory: Path = DIRECTORY
) -> list[str]:
    """Create the database, apply what is missing, make views that are new or changed; return their names.

    Blocks. Every statement is idempotent, so what stopped half-way is applied again. Raises DatabaseOutdated
    or MigrationChanged before anything is done, MigrationRefused, StoreUnavailable.
    """
    say = progress or (lambda line: None)
    store = settings.clickhouse
    with closing(connect(store)) as client:
        database = _Database(client, store)
        database.create()
        applied = database.applied()
        files = migrations(directory)
        _require_known(applied, files, store)
        new = [migration for migration in files if migration.name not in applied]
        for migration in new:
            for number, statement in enumerate(migration.statements, 1):
                database.run(statement, f"statement {number} of migration {migration.name}")
            database.record([(migration.name, migration.sha256)])
            say(f"applied {migration.name}")
        all_views = views(directory)
        made = [view for view in all_views if applied.get(view.recorded) != view.sha256]
        dropped = removed(applied, all_views)
        if made or dropped:
            there = database.views()
            for name in dropped:
                database.drop(name)
            for view in made:
                # Replacing it in one statement would need rights with which a user can drop and fill tables.
                if view.name in there:
                    database.drop(view.name)
                database.run(view.text, f"view {view.name}")
            database.record([(view.recorded, view.sha256) for view in made])
            database.record([(RECORDED + name, _DROPPED) for name in dropped])
            say(f"made {len(made)} views, dropped {len(dropped)}")
        return [*(migration.name for migration in new), *(view.recorded for view in made)]


def missing(store: ClickHouse, *, with_views: bool = True) -> list[str]:
    """Return the names of migrations that were not applied; if none, of views that are not up to date.

    Blocks. Raises StoreUnavailable, also when the database does not exist.
    """
    with connected(store) as client:
        applied = _Database(client, store).applied()
    return missing_of(applied, with_views=with_views)


def missing_of(applied: dict[str, str], *, with_views: bool = True) -> list[str]:
    """Return the same as `missing`, from {name: digest} of what was applied."""
    tables = [migration.name for migration in migrations() if migration.name not in applied]
    if tables or not with_views:
        return tables
    return [view.recorded for view in views() if applied.get(view.recorded) != view.sha256]


def applied_of(rows: Iterable[Sequence[Any]]) -> dict[str, str]:
    """Return {name: digest} from rows of `schema_migrations`, without dropped views."""
    texts = {name: sha256.decode() if isinstance(sha256, bytes) else sha256 for name, sha256 in rows}
    return {name: sha256 for name, sha256 in texts.items() if sha256 != _DROPPED}


def _require_known(applied: dict[str, str], files: Sequence[Migration], store: ClickHouse) -> None:
    """Raises DatabaseOutdated, MigrationChanged."""
    if names := outdated((name for name in applied if not name.startswith(RECORDED)), files):
        raise DatabaseOutdated(store.database, names)
    for migration in files:
        if applied.get(migration.name, migration.sha256) != migration.sha256:
            raise MigrationChanged(migration.name)


class _Database:
    """The database of these settings, on one server or on every shard of a cluster."""

    def __init__(self, client: Client, store: ClickHouse) -> None:
        """Raises StoreUnavailable, also for a cluster that the server does not know."""
        self._client = client
        self._store = store
        # Then a statement for all nodes fails before the client stops waiting for it.
        patience: dict[str, Any] = {"distributed_ddl_task_timeout": max(1, int(store.timeout_seconds) - 1)}
        self._settings = patience if store.cluster else None
        self._shards = self._shards_of_cluster() if store.cluster else 0

    def create(self) -> None:
        """Create the database, and its table of what was applied."""
        with store_unavailable(self._store):
            for statement in (*databases(self._store), *placed(APPLIED, self._store)):
                self._client.command(statement, settings=self._settings)

    def applied(self) -> dict[str, str]:
        """Return {name: digest} of what was applied, on a cluster of what every shard has recorded."""
        query = f"SELECT name, sha256 FROM {self._store.database}.schema_migrations FINAL"
        if self._store.cluster:
            query += f" GROUP BY name, sha256 HAVING uniqExact(_shard_num) = {self._shards}"
        with store_unavailable(self._store):
            return applied_of(self._client.query(query).result_rows)

    def views(self) -> set[str]:
        """Return the names of the views that are there."""
        cluster = self._store.cluster
        tables = f"clusterAllReplicas('{cluster}', system.tables)" if cluster else "system.tables"
        with store_unavailable(self._store):
            rows = self._client.query(
                _VIEWS_THERE.format(tables=tables), parameters={"name": self._store.database}
            ).result_rows
        return {name for (name,) in rows}

    def run(self, statement: str, what: str) -> None:
        """Run a statement in its places. Raises MigrationRefused of `what`, StoreUnavailable."""
        with store_unavailable(self._store), _refused(what):
            for placed_one in placed(statement, self._store):
                self._client.command(placed_one, settings=self._settings)

    def drop(self, view: str) -> None:
        self.run(f"DROP VIEW IF EXISTS {{database}}.{view}", f"to drop view {view}")

    def record(self, rows: Sequence[tuple[str, str]]) -> None:
        """Record on every shard what was applied, so that one that was added later is found to lack it."""
        if not rows:
            return
        with store_unavailable(self._store):
            for shard in range(1, self._shards + 1) if self._store.cluster else (None,):
                self._client.insert(
                    "schema_migrations",
                    rows,
                    column_names=["name", "sha256"],
                    database=self._store.database,
                    settings=None if shard is None else {"insert_shard_id": shard},
                )

    def _shards_of_cluster(self) -> int:
        store = self._store
        query = "SELECT uniqExact(shard_num) FROM system.clusters WHERE cluster = {name:String}"
        with store_unavailable(store):
            ((shards,),) = self._client.query(query, parameters={"name": store.cluster}).result_rows
        if not shards:
            advice = "see SELECT cluster FROM system.clusters, and correct clickhouse.cluster"
            raise StoreUnavailable(
                store.url, f"it knows no cluster {store.cluster}", advice=advice, heals=False
            )
        return int(shards)


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Turn a refused statement into MigrationRefused; a missing answer stays as it is."""
    try:
        yield
    except ClickHouseError as error:
        if getattr(error, "code", None) is None:
            raise
        raise MigrationRefused(what, first_line(error)) from error
