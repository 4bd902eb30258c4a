from __future__ import annotations

import pytest

from pipeline.local.clickhouse.outside import may_reach_outside, outside_part


@pytest.mark.parametrize(
    ("spelled", "part"),
    [
        (b"SELECT file('/x')", "file()"),
        (b"SELECT 'it\\'s', FILE('/x')", "FILE()"),
        (b"SELECT `a\\`b`, `file`('/x')", "`file`()"),
        (b"SELECT * FROM python(x)", "python()"),
        (b"SELECT * FROM executable('id', 'CSV', 'a String')", "executable()"),
        (b"SELECT 1 INTO OUTFILE '/x' TRUNCATE", "INTO OUTFILE"),
        (b"INSERT INTO t FROM INFILE '/x' FORMAT CSV", "FROM INFILE"),
    ],
)
def test_what_the_engine_does_without_asking_for_rights(spelled: bytes, part: str) -> None:
    assert outside_part(spelled) == part
    assert may_reach_outside(spelled.decode())


@pytest.mark.parametrize(
    "spelled",
    [
        b"INSERT INTO t (url, file, python)",
        b"SELECT file, url FROM t WHERE remote IN (1) AND url = 'file(x) INTO OUTFILE \\'y'",
        b"CREATE TABLE t (`file` String, `into outfile 'x` String) ENGINE = MergeTree ORDER BY file",
        b"SELECT profile(1), `a file(`, outfile FROM infile",
    ],
)
def test_ordinary_names_and_texts_are_none(spelled: bytes) -> None:
    assert outside_part(spelled) is None


def test_an_escape_may_spell_any_name() -> None:
    assert may_reach_outside(r"SELECT `\x66i\x6ce`('/x')")
    assert not may_reach_outside("INSERT INTO t (a, b) SETTINGS async_insert = 0 FORMAT Native")
