"""No statement, however it is spelled or sent, reads or writes a file of the machine or reaches a host."""

from __future__ import annotations

import http.client
import secrets
from pathlib import Path
from urllib.parse import urlencode

import pytest
from clickhouse_connect.driver.client import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.local.clickhouse.embedded import EmbeddedStore

QUOTES = (
    "'{}'",
    "`{}`",
    '"{}"',
    "$${}$$",
    "$t${}$t$",
    "\u2018{}\u2019",
    "\u201c{}\u201d",
    "/**/'{}'",
    "('{}')",
    "concat('{}', '')",
)
BEFORE = (
    "",
    "$$'$$ AS a, ",
    "$a$'$a$ AS a, ",
    "\u2018'\u2019 AS a, ",
    "'\\'' AS a, ",
    "'''' AS a, ",
    "/* ' */ ",
    "-- '\n",
    "# '\n",
    "`'` AS a, ",
)
AFTER = ("", " --'", " FORMAT CSV", " SETTINGS max_threads = 1", ";", "/*'*/")
NAMES = (
    "file",
    "FILE",
    "`file`",
    '"file"',
    "file/**/",
    "`fi\\x6ce`",
    "fileCluster",
    "executable",
    "python",
    "url",
    "s3",
)
READS = (
    "SELECT {before}* FROM {quoted}{after}",
    "SELECT {before}* FROM default.{quoted}{after}",
    "SELECT {before}* FROM {name}({quoted}){after}",
    "SELECT {before}* FROM {name}({quoted}, 'LineAsString'){after}",
    "SELECT {before}* FROM {name}({quoted}, LineAsString, 'a String'){after}",
    "SELECT {before}{name}({quoted}){after}",
    "SELECT {before}* FROM (SELECT {name}({quoted})){after}",
    "SELECT {before}* FROM view(SELECT {name}({quoted})){after}",
    "SELECT {before}* FROM loop({name}({quoted})){after}",
    "SELECT {before}* FROM merge({quoted}, '.*'){after}",
    "SELECT {before}* FROM format(Values, 'a String', $q$({name}({quoted}))$q$){after}",
    "WITH {name}({quoted}) AS x SELECT {before}x{after}",
    "DESCRIBE TABLE {name}({quoted}){after}",
    "EXPLAIN indexes = 1 SELECT {before}* FROM {name}({quoted}){after}",
    "INSERT INTO {table} VALUES ({name}({quoted}))",
    "INSERT INTO {table} SELECT {before}* FROM {name}({quoted}){after}",
    "INSERT INTO {table} FROM INFILE {quoted} FORMAT LineAsString{after}",
    "CREATE VIEW {table}_v AS SELECT {before}{name}({quoted}) AS a",
    "CREATE TABLE {table}_f (a String) ENGINE = File(LineAsString, {quoted})",
    "CREATE DICTIONARY {table}_d (a String) PRIMARY KEY a SOURCE(FILE(path {quoted} format CSV)) "
    "LAYOUT(FLAT())",
    "CREATE DATABASE {table}_fs ENGINE = Filesystem({quoted})",
    "ATTACH TABLE {table}_a FROM {quoted} (a String) ENGINE = MergeTree ORDER BY a",
)
WRITES = (
    "SELECT {before}1 INTO OUTFILE {quoted}{after}",
    "SELECT {before}1 INTO/**/OUTFILE {quoted} TRUNCATE{after}",
    "SELECT {before}1 INTO OUTFILE {quoted} AND STDOUT{after}",
    "INSERT INTO FUNCTION {name}({quoted}, 'CSV', 'a String') VALUES ('x')",
    "INSERT INTO FUNCTION {name}({quoted}, 'CSV', 'a String') SELECT 'x'",
    "INSERT INTO {quoted} SELECT 'x'",
    "INSERT INTO default.{quoted} SELECT 'x'",
    "CREATE TABLE {table}_w (a String) ENGINE = File(CSV, {quoted}) AS SELECT 'x' AS a",
    "BACKUP TABLE {table} TO File({quoted})",
    "ALTER TABLE {table} FREEZE WITH NAME {quoted}",
)
SENT = ("body", "address", "both", "session", "form setting")


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A file that the user of the store may read, and what is in it."""
    file = tmp_path_factory.mktemp("canary") / "canary"
    text = secrets.token_hex(16)
    file.write_text(f"{text}\n")
    return file, text


def send(port: int, statement: str, how: str) -> tuple[int, str]:
    """Return status and text of the store's answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    query, body = "", statement.encode()
    if how == "session":
        query = urlencode({"session_id": "reaching"})
    elif how == "form setting":
        query = urlencode({"implicit_select": "1", "max_threads": "1"})
    elif how == "both":
        at = len(statement) // 2
        query, body = urlencode({"query": statement[:at]}), statement[at:].encode()
    elif how == "address":
        query, body = urlencode({"query": statement}), b""
    try:
        connection.request("GET" if how == "address" else "POST", f"/?{query}", body or None)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        connection.close()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_spelling_reads_or_writes_a_file(
    store: EmbeddedStore, store_client: Client, database: str, canary: tuple[Path, str], data: st.DataObject
) -> None:
    file, text = canary
    table = f"{database}.t"
    store_client.command(f"CREATE TABLE IF NOT EXISTS {table} (a String) ENGINE = MergeTree ORDER BY a")
    writes = data.draw(st.booleans())
    path = file.with_name("written") if writes else file
    statement = data.draw(st.sampled_from(WRITES if writes else READS)).format(
        before=data.draw(st.sampled_from(BEFORE)),
        quoted=data.draw(st.sampled_from(QUOTES)).format(path),
        name=data.draw(st.sampled_from(NAMES)),
        table=table,
        after=data.draw(st.sampled_from(AFTER)),
    )
    status, answer = send(store.port, statement, data.draw(st.sampled_from(SENT)))
    assert text not in answer
    assert 400 <= status < 500 or (status == 501 and "input()" in answer), (statement, status, answer)
    assert list(file.parent.iterdir()) == [file]
    assert store_client.query(f"SELECT count() FROM {table}").result_rows == [(0,)]


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("SELECT * FROM url('http://127.0.0.1:9/', 'CSV', 'a UInt8')", 497),
        ("SELECT * FROM s3('http://127.0.0.1:9/bucket/x')", 497),
        ("SELECT * FROM remote('127.0.0.1:9', 'system.one')", 497),
        ("SELECT * FROM mysql('127.0.0.1:9', 'd', 't', 'u', 'p')", 497),
        ("CREATE TABLE {}.x (a UInt8) ENGINE = Kafka SETTINGS kafka_broker_list = 'x'", 497),
        ("CREATE TABLE {}.x (a UInt8) ORDER BY a SETTINGS disk = disk(type = local, path = '/tmp/x/')", 36),
        ("CREATE TABLE {}.x (a UInt8) ENGINE = Executable('id', CSV)", 497),
        ("CREATE TABLE {}.x (a UInt8) ENGINE = Python(x)", 497),
        ("SELECT file('/proc/self/environ')", 497),
        ("CREATE FUNCTION f AS (x) -> x", 497),
        ("CREATE USER u", 497),
        ("GRANT ALL ON *.* TO default", 497),
        ("CREATE NAMED COLLECTION c AS a = 'b'", 497),
        ("SYSTEM SHUTDOWN", 497),
        ("SYSTEM STOP LISTEN HTTP", 497),
        ("DROP DATABASE system", 497),
        ("EXECUTE AS default SELECT 1", 344),
        ("SET dialect = 'prql'", 452),
        ("SET input_format_values_interpret_expressions = 1", 452),
        ("SELECT 1; SELECT 2", 62),
    ],
)
def test_rights_that_nobody_has(store: EmbeddedStore, database: str, statement: str, code: int) -> None:
    status, answer = send(store.port, statement.format(database), "body")
    assert 400 <= status < 500
    assert answer.startswith(f"Code: {code}. DB::Exception: ")
