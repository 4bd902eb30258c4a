"""What tables and columns mean, as comments that any SQL client shows. Pure, but for reading the file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from pipeline.clickhouse.literals import quoted

FILE = "comments.json"
"""Beside the folders of `schemas/clickhouse`, made by `python -m pipeline.generated`: by table, what its
columns mean; under the empty name, what a row is."""

Comments = Mapping[str, Mapping[str, str]]

_TABLE = re.compile(r"^CREATE TABLE IF NOT EXISTS \{database\}\.(\w+)\n\(\n(.*?)^\)$", re.M | re.S)
_COLUMN = re.compile(r"^    (\w+) ((?:(?! CODEC\().)+?)( CODEC\(.*?\))?(,?)$", re.M)


@lru_cache(maxsize=1)
def comments(directory: Path) -> Comments:
    """Return the comments; none if there is no file, as before it is generated for the first time."""
    file = directory / FILE
    return msgspec.json.decode(file.read_bytes(), type=dict[str, dict[str, str]]) if file.exists() else {}


def commented(statement: str, told: Comments) -> str:
    """Return a CREATE TABLE statement with its comments; any other statement as it is."""
    found = _TABLE.search(statement)
    if found is None or found[1] not in told:
        return statement
    meanings = told[found[1]]

    def with_meaning(column: re.Match[str]) -> str:
        name, kind, codec, comma = column[1], column[2], column[3] or "", column[4]
        comment = f" COMMENT {quoted(meanings[name])}" if meanings.get(name) else ""
        return f"    {name} {kind}{comment}{codec}{comma}"

    columns = _COLUMN.sub(with_meaning, found[2])
    text = statement[: found.start(2)] + columns + statement[found.end(2) :]
    return f"{text.rstrip()}\nCOMMENT {quoted(meanings[''])}" if meanings.get("") else text
