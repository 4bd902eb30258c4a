"""Migrations on the real engine: once, in order, never a changed file."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from pipeline.clickhouse import migrations, sql_files
from pipeline.clickhouse.layout import placed
from pipeline.clickhouse.view_files import views
from pipeline.errors import DatabaseOutdated, MigrationChanged, MigrationRefused, StoreUnavailable
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.rows import EngineCountersRow, FlowRow, OccupancyRow, SourceRow, StreamHealthRow
from schemas.settings import ClickHouse, Settings

ROWS = (OccupancyRow, FlowRow, StreamHealthRow, EngineCountersRow, SourceRow)


def settings(store: EmbeddedStore, database: str) -> Settings:
    return Settings(clickhouse=ClickHouse(url=store.url, database=database))


def columns(client: Client, database: str, table: str) -> list[str]:
    query = (
        "SELECT name FROM system.columns WHERE database = {d:String} AND table = {t:String} ORDER BY position"
    )
    return [row[0] for row in client.query(query, parameters={"d": database, "t": table}).result_rows]


def test_all_files_apply_once_and_create_the_database(store: EmbeddedStore, store_client: Client) -> None:
    database = f"fresh_{secrets.token_hex(4)}"
    said: list[str] = []
    files = [migration.name for migration in sql_files.migrations()]
    names = [*files, *(view.recorded for view in views())]
    try:
        assert migrations.apply(settings(store, database), said.append) == names
        assert said == [*(f"applied {name}" for name in files), f"made {len(views())} views, dropped 0"]
        assert migrations.apply(settings(store, database), said.append) == []
        assert len(said) == len(files) + 1
        for kind in ROWS:
            assert columns(store_client, database, kind.TABLE) == list(kind.__struct_fields__)
        for kind in (OccupancyRow, FlowRow, StreamHealthRow):
            family = kind.TABLE.removesuffix("_10s")
            minutes, hours = (columns(store_client, database, f"{family}_{per}") for per in ("1m", "1h"))
            assert minutes == hours
            assert [name for name in minutes if name in kind.__struct_fields__] == list(
                kind.__struct_fields__
            )
    finally:
        store_client.command(f"DROP DATABASE IF EXISTS {database} SYNC")


def write(directory: Path, **files: str) -> Path:
    """Write files of tables, those with a number, and of views; return the directory."""
    for folder in ("tables", "views"):
        (directory / folder).mkdir(exist_ok=True)
    for name, text in files.items():
        folder = "tables" if name.startswith("n") else "views"
        (directory / folder / f"{name.removeprefix('n')}.sql").write_text(text)
    return directory


A = "CREATE TABLE IF NOT EXISTS {database}.a (x UInt8) ENGINE = Memory;"
B = A.replace(".a", ".b")
V = "CREATE VIEW {database}.v AS\nSELECT x FROM {database}.a"
W = "CREATE VIEW {database}.w AS\nSELECT * FROM {database}.v"


def test_changed_file_is_refused_before_anything_runs(
    store: EmbeddedStore, store_client: Client, database: str, tmp_path: Path
) -> None:
    migrations.apply(settings(store, database), directory=write(tmp_path, n0001_a=A))
    write(tmp_path, n0001_a=A.replace("UInt8", "UInt16"), n0002_b=B)
    with pytest.raises(MigrationChanged, match=r"0001_a\.sql"):
        migrations.apply(settings(store, database), directory=tmp_path)
    assert columns(store_client, database, "b") == []


def test_database_of_an_older_kvlens_is_refused_with_what_to_do(
    store: EmbeddedStore, store_client: Client, database: str, tmp_path: Path
) -> None:
    write(tmp_path, n0001_replica_tables=A, n0002_fleet_tables=B, n0015_now=A)
    migrations.apply(settings(store, database), directory=tmp_path)
    with pytest.raises(DatabaseOutdated) as raised:
        migrations.apply(settings(store, database))
    line = str(raised.value)
    assert raised.value.names == ("0001_replica_tables.sql", "0002_fleet_tables.sql", "0015_now.sql")
    assert f"DROP DATABASE {database}" in line
    assert "`kvlens state rebuild`" in line
    assert "delete the data directory" in line
    assert "\n" not in line
    assert columns(store_client, database, "occupancy_10s") == []


def test_database_of_a_newer_kvlens_is_left_as_it_is(
    store: EmbeddedStore, store_client: Client, database: str, tmp_path: Path
) -> None:
    migrations.apply(settings(store, database), directory=write(tmp_path, n0001_a=A, n0002_b=B))
    (tmp_path / "tables" / "0002_b.sql").unlink()
    assert migrations.apply(settings(store, database), directory=tmp_path) == []
    assert columns(store_client, database, "b") == ["x"]


def test_a_view_is_made_again_when_it_or_what_it_asks_changed_and_dropped_with_its_file(
    store: EmbeddedStore, store_client: Client, database: str, tmp_path: Path
) -> None:
    def applied(**files: str) -> list[str]:
        return migrations.apply(settings(store, database), directory=write(tmp_path, **files))

    own = f"CREATE VIEW {database}.mine AS SELECT 1 AS x"
    assert applied(n0001_a=A, v=V, w=W) == ["0001_a.sql", "views/v", "views/w"]
    store_client.command(own)
    assert applied(v=V.replace("x", "x, x + 1 AS y")) == ["views/v", "views/w"]
    assert columns(store_client, database, "w") == ["x", "y"]
    assert applied(w=W + " WHERE y > 1") == ["views/w"]
    more = "ALTER TABLE {database}.a ADD COLUMN IF NOT EXISTS z UInt8"
    assert applied(n0002_z=more, v=V.replace("x", "*"), w=W) == ["0002_z.sql", "views/v", "views/w"]
    (tmp_path / "views" / "w.sql").unlink()
    assert applied() == []
    assert columns(store_client, database, "w") == []
    assert columns(store_client, database, "v") == ["x", "z"]
    assert columns(store_client, database, "mine") == ["x"]
    assert applied(w=W) == ["views/w"]


def test_refused_statement_is_named_and_the_file_runs_again_when_mended(
    store: EmbeddedStore, store_client: Client, database: str, tmp_path: Path
) -> None:
    write(tmp_path, n0001_a=A + B.replace("UInt8", "Nonsense"))
    with pytest.raises(MigrationRefused, match=r"statement 2 of migration 0001_a\.sql"):
        migrations.apply(settings(store, database), directory=tmp_path)
    write(tmp_path, n0001_a=A + B, v=V, w=W.replace("*", "y"))
    with pytest.raises(MigrationRefused, match=r"view w: "):
        migrations.apply(settings(store, database), directory=tmp_path)
    # Nothing is noted of views before all are there.
    write(tmp_path, w=W)
    assert migrations.apply(settings(store, database), directory=tmp_path) == ["views/v", "views/w"]
    assert columns(store_client, database, "w") == ["x"]


def test_statements_split_only_outside_strings_and_comments() -> None:
    text = (
        "-- one; two\nSELECT ';' -- three;\n;\n-- only a comment\n;"
        "SELECT {engine:Replacing(v)} FROM {database}.t"
    )
    pieces = sql_files.split(text)
    assert [one for piece in pieces for one in placed(piece, ClickHouse(database="d"))] == [
        "-- one; two\nSELECT ';' -- three;",
        "SELECT Replacing(v) FROM d.t",
    ]


def test_unreachable_store_is_one_clear_line(free_port: object) -> None:
    url = f"http://127.0.0.1:{free_port()}"  # type: ignore[operator]
    with pytest.raises(StoreUnavailable) as raised:
        migrations.apply(Settings(clickhouse=ClickHouse(url=url)))
    assert url in str(raised.value)
    assert "\n" not in str(raised.value)


def test_views_bound_both_ends(store_client: Client, own: Settings) -> None:
    database = own.clickhouse.database
    began = datetime.now(timezone.utc).replace(second=0, microsecond=0) - timedelta(hours=1)
    store_client.command(
        f"INSERT INTO {database}.occupancy_10s "
        f"SELECT toDateTime('{began - timedelta(seconds=10):%F %T}', 'UTC') + number * 10, 'm', 'r', "
        "0, 'gpu', 0, 16, number, number, number, 0, 0, false, false, 'complete', now64(3), version "
        "FROM numbers(20) AS n CROSS JOIN (SELECT arrayJoin([1, 2]) AS version) AS v"
    )
    query = (
        f"SELECT entries, version FROM {database}.occupancy(from={{a:DateTime}}, to={{b:DateTime}}) "
        "ORDER BY window"
    )
    ends = {"a": f"{began:%F %T}", "b": f"{began + timedelta(seconds=20):%F %T}"}
    rows = store_client.query(query, parameters=ends)
    assert rows.result_rows == [(1, 2), (2, 2), (3, 2)]
