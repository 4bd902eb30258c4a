"""Migrations on the real engine: once, in order, never a changed file."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from pipeline.clickhouse import migrations
from pipeline.errors import MigrationChanged, MigrationRefused, MigrationUnreleased, StoreUnavailable
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
    names = [migration.name for migration in migrations.migrations()]
    try:
        assert migrations.apply(settings(store, database), said.append) == names
        assert said == [f"applied {name}" for name in names]
        assert migrations.apply(settings(store, database), said.append) == []
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


def test_changed_file_is_refused_before_anything_runs(
    store: EmbeddedStore, store_client: Client, database: str, tmp_path: Path
) -> None:
    (tmp_path / "0001_a.sql").write_text("CREATE TABLE {database}.a (x UInt8) ENGINE = Memory;")
    migrations.apply(settings(store, database), directory=tmp_path)
    (tmp_path / "0001_a.sql").write_text("CREATE TABLE {database}.a (x UInt16) ENGINE = Memory;")
    (tmp_path / "0002_b.sql").write_text("CREATE TABLE {database}.b (x UInt8) ENGINE = Memory;")
    with pytest.raises(MigrationChanged, match=r"0001_a\.sql"):
        migrations.apply(settings(store, database), directory=tmp_path)
    assert columns(store_client, database, "b") == []


def test_database_of_an_unreleased_kvlens_is_refused_with_what_to_do(
    store: EmbeddedStore, store_client: Client, database: str, tmp_path: Path
) -> None:
    for name in ("0001_tables", "0002_rollups", "0016_finest"):
        (tmp_path / f"{name}.sql").write_text(
            "CREATE TABLE IF NOT EXISTS {database}.a (x UInt8) ENGINE = Memory;"
        )
    migrations.apply(settings(store, database), directory=tmp_path)
    with pytest.raises(MigrationUnreleased) as raised:
        migrations.apply(settings(store, database))
    line = str(raised.value)
    assert raised.value.names == ("0001_tables.sql", "0002_rollups.sql", "0016_finest.sql")
    assert f"DROP DATABASE {database}" in line
    assert "delete the data directory" in line
    assert "\n" not in line
    assert columns(store_client, database, "occupancy_10s") == []


def test_database_of_a_newer_kvlens_is_left_as_it_is(
    store: EmbeddedStore, store_client: Client, database: str, tmp_path: Path
) -> None:
    (tmp_path / "0001_a.sql").write_text("CREATE TABLE {database}.a (x UInt8) ENGINE = Memory;")
    (tmp_path / "0002_b.sql").write_text("CREATE TABLE {database}.b (x UInt8) ENGINE = Memory;")
    migrations.apply(settings(store, database), directory=tmp_path)
    (tmp_path / "0002_b.sql").unlink()
    assert migrations.apply(settings(store, database), directory=tmp_path) == []
    assert columns(store_client, database, "b") == ["x"]


def test_refused_statement_is_named_and_the_file_runs_again_when_mended(
    store: EmbeddedStore, store_client: Client, database: str, tmp_path: Path
) -> None:
    good = "CREATE TABLE IF NOT EXISTS {database}.a (x UInt8) ENGINE = Memory;\n"
    (tmp_path / "0001_a.sql").write_text(good + "CREATE TABLE {database}.b (x Nonsense) ENGINE = Memory")
    with pytest.raises(MigrationRefused, match=r"statement 2 of migration 0001_a\.sql"):
        migrations.apply(settings(store, database), directory=tmp_path)
    (tmp_path / "0001_a.sql").write_text(good + "CREATE TABLE {database}.b (x UInt8) ENGINE = Memory")
    assert migrations.apply(settings(store, database), directory=tmp_path) == ["0001_a.sql"]
    assert columns(store_client, database, "b") == ["x"]


def test_statements_split_only_outside_strings_and_comments() -> None:
    text = (
        "-- one; two\nSELECT ';' -- three;\n;\n-- only a comment\n;"
        "SELECT {engine:Replacing(v)} FROM {database}.t"
    )
    assert migrations.statements(text, "d") == [
        "-- one; two\nSELECT ';' -- three;",
        "SELECT Replacing(v) FROM d.t",
    ]


def test_unreachable_store_is_one_clear_line(free_port: object) -> None:
    url = f"http://127.0.0.1:{free_port()}"  # type: ignore[operator]
    with pytest.raises(StoreUnavailable) as raised:
        migrations.apply(Settings(clickhouse=ClickHouse(url=url)))
    assert url in str(raised.value)
    assert "\n" not in str(raised.value)


def test_views_bound_both_ends(store: EmbeddedStore, store_client: Client, database: str) -> None:
    migrations.apply(settings(store, database))
    began = datetime.now(timezone.utc).replace(second=0, microsecond=0) - timedelta(hours=1)
    store_client.command(
        f"INSERT INTO {database}.occupancy_10s "
        f"SELECT toDateTime('{began - timedelta(seconds=10):%F %T}', 'UTC') + number * 10, 'm', 'r', "
        "0, 'gpu', 0, 16, number, number, number, 0, 0, false, 'complete', now64(3), version "
        "FROM numbers(20) AS n CROSS JOIN (SELECT arrayJoin([1, 2]) AS version) AS v"
    )
    query = (
        f"SELECT entries, version FROM {database}.occupancy(from={{a:DateTime}}, to={{b:DateTime}}) "
        "ORDER BY window"
    )
    ends = {"a": f"{began:%F %T}", "b": f"{began + timedelta(seconds=20):%F %T}"}
    rows = store_client.query(query, parameters=ends)
    assert rows.result_rows == [(1, 2), (2, 2), (3, 2)]
