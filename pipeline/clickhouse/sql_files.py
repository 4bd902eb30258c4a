"""The SQL files of `schemas/clickhouse`, read and split into statements. No IO but reading them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import schemas
from pipeline.clickhouse import grains
from pipeline.clickhouse.comments import commented, comments
from pipeline.clickhouse.sentences import filled_in

DIRECTORY = Path(schemas.__file__).parent / "clickhouse"
TABLES, VIEWS, ROLLUPS = "tables", "views", "rollups"
"""Its folders: numbered migrations, each applied once; views, one file each; statements that compute minutes
and hours."""

_NUMBERED = re.compile(r"\d{4}_\w+\.sql")
_ENGINE = re.compile(r"\{engine:(\w+)\(")
_FILLED = re.compile(r"CREATE MATERIALIZED VIEW [^(]*? TO \{database\}\.(\w+)")
# A quoted string, a comment, or the end of a statement: only the last one splits.
_TOKEN = re.compile(r"'(?:[^'\\]|\\.|'')*'|--[^\n]*|(;)")

APPLIED = """
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
    """One numbered file: its name, its statements and its text's digest (hex)."""

    name: str
    statements: Sequence[str]
    sha256: str


def migrations(directory: Path = DIRECTORY) -> list[Migration]:
    """Return the numbered files in the order of their numbers."""
    found = []
    for path in sorted(path for path in (directory / TABLES).iterdir() if _NUMBERED.fullmatch(path.name)):
        text = path.read_text("utf-8")
        made = (one for piece in split(text) for one in grains.of_table(piece))
        statements = [commented(one, comments(directory)) for one in made]
        found.append(Migration(path.name, statements, hashlib.sha256(text.encode()).hexdigest()))
    return found


def view_texts(directory: Path = DIRECTORY) -> list[str]:
    """Return the texts of the view files, in the order of their names, with grains and texts filled in."""
    texts = [path.read_text("utf-8") for path in sorted((directory / VIEWS).glob("*.sql"))]
    return [grains.of_view(filled_in(text)) for text in texts]


def rollup(table: str) -> str:
    """Return the statement that computes rows of a minute or hour table."""
    family, _, grain = table.rpartition("_")
    return grains.of_rollup((DIRECTORY / ROLLUPS / f"{family}.sql").read_text("utf-8"), grain)


def engines() -> set[str]:
    """Return the table engines that the files name."""
    return {match[1] for text in _of_tables() for match in _ENGINE.finditer(text)}


def filled() -> set[str]:
    """Return the tables that materialized views write."""
    return {name for text in _of_tables() for name in _FILLED.findall(text)}


def _of_tables() -> list[str]:
    return [APPLIED, *(statement for each in migrations() for statement in each.statements)]


def outdated(applied: Iterable[str], files: Sequence[Migration]) -> tuple[str, ...]:
    """Return the unknown names among `applied`, if they show that their files were replaced; else nothing.

    A newer kvlens only adds files after the last one of `files`. If an unknown name has a number up to that
    one, the whole set was replaced, and all unknown names belong to the old set.
    """
    unknown = sorted(set(applied) - {migration.name for migration in files})
    return tuple(unknown) if unknown and files and unknown[0][:4] <= files[-1].name[:4] else ()


def split(text: str) -> list[str]:
    """Split at semicolons outside strings and comments."""
    pieces, start = [], 0
    for token in _TOKEN.finditer(text):
        if token[1]:
            pieces.append(text[start : token.start()])
            start = token.end()
    pieces.append(text[start:])
    return [piece for piece in pieces if _says_something(piece)]


def _says_something(piece: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith("--") for line in piece.splitlines())
