from __future__ import annotations

import pytest

from pipeline.local.clickhouse.statements import (
    Verdict,
    calls,
    is_select,
    output_format,
    read_head,
)

# An INSERT's head, its format as written, and what follows.
_INSERTS = [
    (b"INSERT INTO t ", "Native", b"FORMAT Native\n", b"\x00\xff'"),
    (b'insert into t (`values`, "format") ', "CSV", b"format CSV ", b"1,2"),
    (b"INSERT INTO t SETTINGS a = 1 ", "TSV", b"FORMAT TSV\r\n", b"\n1"),
    (b"-- INSERT\n/* FORMAT */ INSERT INTO t ", "Values", b"VALUES", b" (1)"),
    (b"INSERT INTO FUNCTION null('x FORMAT y') ", "JSONEachRow", b"FORMAT JSONEachRow ", b"{}"),
]
_TEXTS = [head + clause + data for head, _, clause, data in _INSERTS]


@pytest.mark.parametrize(("head", "name", "clause", "data"), _INSERTS)
def test_an_insert_is_split_from_its_data(head: bytes, name: str, clause: bytes, data: bytes) -> None:
    text = head + clause + data
    found = read_head(text, complete=True)
    assert (found.verdict, found.head, found.format) == (Verdict.INSERT, head, name)
    assert text[found.data_at :] == data


@pytest.mark.parametrize("text", _TEXTS)
def test_no_beginning_of_an_insert_is_decided_wrongly(text: bytes) -> None:
    """Whatever the pieces in which a body arrives, what is decided early is what the whole says."""
    whole = read_head(text, complete=True)
    for end in range(len(text)):
        part = read_head(text[:end], complete=False)
        if part.verdict is not Verdict.UNDECIDED:
            assert (part.verdict, part.head, part.format) == (whole.verdict, whole.head, whole.format)


@pytest.mark.parametrize(
    "text",
    [
        b"SELECT 1 FORMAT CSV",
        b"INSERT INTO t SELECT 1",
        b"INSERT INTO t SELECT 1 AS format FROM x",
        b"INSERT INTO t WITH 1 AS x SELECT x FORMAT TSV",
        b"WITH 'INSERT' AS i SELECT i",
        b"/* INSERT INTO t VALUES",
        b"",
    ],
)
def test_what_carries_no_data_is_plain(text: bytes) -> None:
    assert read_head(text, complete=True).verdict is Verdict.PLAIN


def test_input_is_recognised_only_as_a_function() -> None:
    assert read_head(
        b"INSERT INTO t SELECT * FROM (SELECT a FROM input('a UInt8')) FORMAT CSV 1", True
    ).verdict is (Verdict.INSERT_INPUT)
    assert read_head(b"INSERT INTO t SELECT input, 'input(' FROM x", True).verdict is Verdict.PLAIN


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"SELECT 1 FORMAT JSON", "JSON"),
        (b"SELECT 1 FORMAT JSON SETTINGS a = 1;", "JSON"),
        (b"SELECT 'FORMAT CSV' -- FORMAT CSV", None),
        (b"SELECT format FROM (SELECT 1 FORMAT CSV)", None),
        (b"SELECT 1", None),
    ],
)
def test_the_named_format_of_a_result(text: bytes, name: str | None) -> None:
    assert output_format(text) == name


def test_only_select_and_with_are_streamed() -> None:
    assert is_select(b"  -- x\n select 1")
    assert is_select(b"WITH 1 AS x SELECT x")
    assert not is_select(b"SHOW TABLES")
    assert not is_select(b"")


def test_names_before_brackets() -> None:
    text = b"SELECT Count(), `file` (1), 'url('  FROM t -- s3(\n WHERE a IN (1)"
    assert calls(text) == {"count", "file", "in"}
