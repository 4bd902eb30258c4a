"""The store through clickhouse-connect, as the pipeline uses it: embedded and, by `make test-fleet`, real."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError
from clickhouse_connect.driver.external import ExternalData
from clickhouse_connect.driver.summary import QuerySummary

from pipeline.local.clickhouse.accounts import Account
from pipeline.local.clickhouse.embedded import EmbeddedStore
from tests.support.suite.night import first_by_day

_CODINGS = ["lz4", "zstd", "gzip", False]


def _table(client: Client, database: str) -> str:
    client.command(f"CREATE TABLE {database}.t (a UInt64, b String) ENGINE = MergeTree ORDER BY a")
    return f"{database}.t"


@pytest.mark.parametrize("coding", first_by_day(_CODINGS, 2))
def test_100_000_rows_arrive_complete_in_every_coding(
    store: EmbeddedStore, store_client: Client, database: str, coding: str | bool
) -> None:
    """The client sends one compression frame for each block: a decoder that stops after one loses a third."""
    table = _table(store_client, database)
    client = clickhouse_connect.get_client(dsn=store.url, compress=coding)
    rows = [[number, f"value {number * 7919}"] for number in range(100_000)]
    assert client.insert(table, rows, column_names=["a", "b"]).written_rows == 100_000
    answer = client.query(f"SELECT a, b FROM {table} ORDER BY a")
    assert [list(row) for row in answer.result_rows] == rows
    client.close()


@pytest.mark.parametrize("coding", first_by_day(_CODINGS))
async def test_the_async_client_does_the_same(
    store: EmbeddedStore, store_client: Client, database: str, coding: str | bool
) -> None:
    table = _table(store_client, database)
    client = await clickhouse_connect.get_async_client(dsn=store.url, compress=coding)
    try:
        rows = [[number, f"value {number}"] for number in range(100_000)]
        await client.insert(table, rows, column_names=["a", "b"])
        counts = await asyncio.gather(
            *(client.query(f"SELECT count(), uniqExact(b), sum(a) FROM {table}") for _ in range(4))
        )
        assert [count.result_rows for count in counts] == [[(100_000, 100_000, 4_999_950_000)]] * 4
    finally:
        await client.close()


def test_300_000_rows_are_streamed_in_order(store_client: Client) -> None:
    seen = 0
    blocks = 0
    with store_client.query_row_block_stream("SELECT number FROM system.numbers LIMIT 300000") as stream:
        for block in stream:
            assert [row[0] for row in block] == list(range(seen, seen + len(block)))
            seen += len(block)
            blocks += 1
    assert seen == 300_000
    assert blocks > 1


def test_types_come_back_as_they_were(store_client: Client, database: str) -> None:
    store_client.command(
        f"CREATE TABLE {database}.kinds (w DateTime('UTC'), k LowCardinality(String), h Array(UInt64), "
        "n Nullable(Float64), m Map(String, UInt32)) ENGINE = MergeTree ORDER BY w"
    )
    row = (datetime(2026, 1, 2, 3, 4, 5), "gpu", [0, 2**64 - 1], None, {"a": 1})
    store_client.insert(f"{database}.kinds", [row], column_names=["w", "k", "h", "n", "m"])
    answer = store_client.query(f"SELECT * FROM {database}.kinds").result_rows
    assert [(_utc(each[0]), *each[1:]) for each in answer] == [(_utc(row[0]), *row[1:])]


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "value", ["plain", "it's", "tab\there", "back\\slash", "line\nend", "é {x} `'\"", ""]
)
def test_bound_parameters_are_values_and_nothing_else(store_client: Client, value: str) -> None:
    answer = store_client.query("SELECT {x:String}, {n:Array(UInt64)}", parameters={"x": value, "n": [1, 2]})
    assert answer.result_rows == [(value, [1, 2])]


def test_an_identifier_parameter_and_dates(store_client: Client, database: str) -> None:
    table = _table(store_client, database)
    store_client.insert(table, [[1, "x"]], column_names=["a", "b"])
    answer = store_client.query(
        f"SELECT {{column:Identifier}}, {{at:DateTime('UTC')}} FROM {table}",
        parameters={"column": "b", "at": datetime(2026, 1, 2, tzinfo=timezone.utc)},
    )
    assert [(row[0], _utc(row[1])) for row in answer.result_rows] == [
        ("x", datetime(2026, 1, 2, tzinfo=timezone.utc))
    ]


def test_an_empty_result_is_told_from_no_result(store_client: Client, database: str) -> None:
    assert store_client.command("SELECT 1 WHERE 0") == ""
    assert store_client.command("SELECT 1 WHERE 0 FORMAT CSVWithNames") == '"1"'
    assert store_client.command(f"SHOW TABLES FROM {database}") == ""
    assert store_client.query("SELECT 1 AS a WHERE 0").result_rows == []
    assert isinstance(
        store_client.command(f"CREATE TABLE {database}.e (a UInt8) ENGINE = Memory"), QuerySummary
    )


def test_settings_hold_for_one_query(store_client: Client) -> None:
    value = "SELECT getSetting('max_block_size')"
    assert store_client.query(value, settings={"max_block_size": 1234}).result_rows == [(1234,)]
    assert store_client.query(value).result_rows != [(1234,)]


def test_the_client_s_database_is_the_current_one(
    store: EmbeddedStore, store_client: Client, database: str
) -> None:
    _table(store_client, database)
    client = clickhouse_connect.get_client(dsn=store.url, database=database)
    client.insert("t", [[5, "five"]], column_names=["a", "b"])
    assert client.query("SELECT * FROM t").result_rows == [(5, "five")]
    client.close()


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("SELECT * FROM no_such_table", 60),
        ("SELECT no_such_column", 47),
        ("SELEC 1", 62),
        ("SELECT 1; SELECT 2", 62),
        ("SELECT throwIf(1)", 395),
        ("USE no_such_database", 81),
    ],
)
def test_errors_have_the_server_s_codes(store_client: Client, statement: str, code: int) -> None:
    with pytest.raises(DatabaseError, match=rf"(?s)ode: {code}\b"):
        store_client.command(statement)


def test_an_error_in_the_middle_of_a_stream_is_raised(store_client: Client) -> None:
    statement = "SELECT throwIf(number = 250000) FROM numbers(300000) SETTINGS max_block_size = 10000"
    with pytest.raises(DatabaseError, match="395"):
        store_client.query(statement)


def test_an_insert_of_bad_data_writes_nothing(store_client: Client, database: str) -> None:
    table = _table(store_client, database)
    with pytest.raises(DatabaseError):
        store_client.raw_insert(table, ["a", "b"], b"1,x\nnot a number,y\n", fmt="CSV")
    assert store_client.command(f"SELECT count() FROM {table}") == 0


def test_external_data_are_a_table_for_one_query(store_client: Client) -> None:
    data = ExternalData(
        file_name="wanted.csv", data=b"1,one\n3,three\n", fmt="CSV", structure=["id UInt64", "name String"]
    )
    answer = store_client.query(
        "SELECT id, name FROM numbers(5) AS n JOIN wanted ON n.number = wanted.id ORDER BY id",
        external_data=data,
    )
    assert answer.result_rows == [(1, "one"), (3, "three")]
    with pytest.raises(DatabaseError, match="60"):
        store_client.query("SELECT * FROM wanted")


def test_a_session_keeps_its_temporary_table(store: EmbeddedStore) -> None:
    client = clickhouse_connect.get_client(dsn=store.url, session_id="temporary")
    other = clickhouse_connect.get_client(dsn=store.url, session_id="another")
    client.command("CREATE TEMPORARY TABLE kept (a UInt8)")
    client.insert("kept", [[1], [2]], column_names=["a"])
    assert client.query("SELECT sum(a) FROM kept").result_rows == [(3,)]
    with pytest.raises(DatabaseError, match="60"):
        other.query("SELECT * FROM kept")
    client.close()
    other.close()


def test_upserts_and_parameterised_views_work(store_client: Client, database: str) -> None:
    store_client.command(
        f"CREATE TABLE {database}.u (k UInt8, v UInt8, version UInt64) "
        "ENGINE = ReplacingMergeTree(version) ORDER BY k"
    )
    store_client.command(
        f"CREATE VIEW {database}.view AS SELECT * FROM {database}.u FINAL WHERE k >= {{from:UInt8}}"
    )
    for version, value in ((2, 20), (1, 10), (2, 20)):
        store_client.insert(f"{database}.u", [[7, value, version]], column_names=["k", "v", "version"])
    assert store_client.query(f"SELECT v FROM {database}.view(from=1)").result_rows == [(20,)]


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[EmbeddedStore]:
    """A store with a password, and an account for reading."""
    part = EmbeddedStore(
        tmp_path_factory.mktemp("guarded"),
        free_port(),
        writer=Account("kvlens", "s3cret'", readonly=False),
        reader=Account("grafana", "look", readonly=True),
    )
    part.start()
    yield part
    part.kill()


def _client(part: EmbeddedStore, user: str, password: str, session: str | None = None) -> Client:
    return clickhouse_connect.get_client(
        host="127.0.0.1",
        port=part.port,
        username=user,
        password=password,
        session_id=session,
        autogenerate_session_id=False,
    )


@pytest.mark.parametrize(("user", "password"), [("kvlens", "wrong"), ("default", ""), ("nobody", "s3cret'")])
def test_a_wrong_password_is_refused(guarded: EmbeddedStore, user: str, password: str) -> None:
    with pytest.raises(DatabaseError, match="516"):
        _client(guarded, user, password)


@pytest.mark.parametrize("session", [None, "reading"])
def test_the_reading_account_reads_and_cannot_write(guarded: EmbeddedStore, session: str | None) -> None:
    writer = _client(guarded, "kvlens", "s3cret'")
    writer.command("CREATE DATABASE IF NOT EXISTS d")
    writer.command("CREATE OR REPLACE TABLE d.t (a UInt8) ENGINE = MergeTree ORDER BY a")
    writer.insert("d.t", [[1]], column_names=["a"])
    reader = _client(guarded, "grafana", "look", session)
    assert reader.query("SELECT a FROM d.t", settings={"max_execution_time": 30}).result_rows == [(1,)]
    with pytest.raises(DatabaseError, match="164"):
        reader.insert("d.t", [[2]], column_names=["a"])
    with pytest.raises(DatabaseError, match="164"):
        reader.command("DROP TABLE d.t")
    with pytest.raises(DatabaseError, match="164"):
        reader.command("SET readonly = 0")
    assert writer.query("SELECT count() FROM d.t").result_rows == [(1,)]
    writer.close()
    reader.close()


def test_data_survive_a_stop_and_the_log_names_nothing(tmp_path: Path, free_port: Callable[[], int]) -> None:
    part = EmbeddedStore(tmp_path, free_port())
    try:
        part.start()
        client = clickhouse_connect.get_client(dsn=part.url)
        client.command("CREATE DATABASE d")
        table = _table(client, "d")
        client.insert(table, [[1, "kept"]], column_names=["a", "b"])
        client.close()
        part.stop()
        assert not part.running

        part = EmbeddedStore(tmp_path, free_port())
        part.start()
        client = clickhouse_connect.get_client(dsn=part.url)
        assert client.query(f"SELECT * FROM {table}").result_rows == [(1, "kept")]
        client.close()
        # The engine itself may say what it misses, such as control groups in a bare chroot.
        log = part.log.read_text()
        assert not [word for word in ("Traceback", "kept", "CREATE", "INSERT", table) if word in log]
    finally:
        part.kill()
