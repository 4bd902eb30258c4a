"""Tables and views as the SQL files of `schemas/clickhouse` define them.

Reads the statements kvlens writes, not SQL at large: CREATE TABLE with a column list, ALTER TABLE ADD COLUMN
and CREATE VIEW; everything else defines nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|--[^\n]*|[();,]|[^'();,\-]+|-")
CREATE_TABLE = re.compile(r"\s*CREATE TABLE (?:IF NOT EXISTS )?\{database\}\.(\w+)\s*(?=\()", re.I)
CREATE_VIEW = re.compile(r"\s*CREATE (?:MATERIALIZED )?VIEW (?:IF NOT EXISTS )?\{database\}\.(\w+)", re.I)
ADD_COLUMN = re.compile(
    r"\s*ALTER TABLE \{database\}\.(\w+)\s+ADD COLUMN (?:IF NOT EXISTS )?(.+?)(?:\s+AFTER\s+(\w+))?\s*$",
    re.I | re.S,
)
COLUMN = re.compile(
    r"(\w+)\s+(.+?)(?:\s+(?:CODEC|DEFAULT|MATERIALIZED|ALIAS|TTL|COMMENT)\b.*)?$", re.I | re.S
)
NOT_A_COLUMN = re.compile(r"(INDEX|CONSTRAINT|PROJECTION|PRIMARY KEY)\b", re.I)
CLAUSES = {
    "engine": re.compile(r"\bENGINE\s*=\s*(.+?)(?=\bPARTITION BY\b|\bORDER BY\b|$)", re.I | re.S),
    "partition": re.compile(r"\bPARTITION BY\s+(.+?)(?=\bORDER BY\b|$)", re.I | re.S),
    "key": re.compile(r"\bORDER BY\s+(.+?)(?=\bTTL\b|\bSETTINGS\b|\bCOMMENT\b|$)", re.I | re.S),
    "ttl": re.compile(r"\bTTL\s+(.+?)(?=\bSETTINGS\b|\bCOMMENT\b|$)", re.I | re.S),
}
# `finest` gives a view no rows: it says from which table to read them.
VIEW_SOURCE = re.compile(r"\bFROM \{database\}\.(?!finest\b)(\w+)", re.I)
VIEW_PARAMETER = re.compile(r"\{(\w+):\s*([^}]+?)\}")


@dataclass(frozen=True)
class Table:
    """One table; clauses are empty where the statement has none."""

    name: str
    comment: str
    """The SQL comment directly above the statement."""
    columns: dict[str, str]
    """Name -> type, in order."""
    engine: str = ""
    partition: str = ""
    key: str = ""
    ttl: str = ""


@dataclass(frozen=True)
class View:
    """One view."""

    name: str
    comment: str
    table: str
    """The first table it reads."""
    parameters: dict[str, str] = field(default_factory=dict)
    """Name -> type, in order of first use."""


def parse(texts: Iterable[str]) -> tuple[dict[str, Table], dict[str, View]]:
    """Return tables and views by name, in the order of the texts."""
    tables: dict[str, Table] = {}
    views: dict[str, View] = {}
    for comment, statement in (item for text in texts for item in _statements(text)):
        if found := CREATE_TABLE.match(statement):
            tables.setdefault(found[1], _table(found[1], comment, statement[found.end() :]))
        elif found := ADD_COLUMN.match(statement):
            _add_column(tables[found[1]].columns, found[2], after=found[3])
        elif found := CREATE_VIEW.match(statement):
            parameters = {name: kind for name, kind in VIEW_PARAMETER.findall(statement) if name != "engine"}
            source = VIEW_SOURCE.search(statement)
            views[found[1]] = View(found[1], comment, source[1] if source else "", parameters)
    return tables, views


def _statements(text: str) -> Iterator[tuple[str, str]]:
    """Yield (comment directly above, statement without comments)."""
    comment: list[str] = []
    statement: list[str] = []
    for token in TOKEN.findall(text):
        if token == ";":
            yield " ".join(comment), "".join(statement).strip()
            comment, statement = [], []
        elif token.startswith("--"):
            if not "".join(statement).strip():
                comment.append(token.removeprefix("--").strip())
        else:
            if not "".join(statement).strip() and "\n\n" in token:
                comment = []  # an empty line between: a comment of the file, not of the statement
            statement.append(token)
    yield " ".join(comment), "".join(statement).strip()


def _table(name: str, comment: str, definition: str) -> Table:
    columns: dict[str, str] = {}
    items, rest = _column_list(definition)
    for item in items:
        if not NOT_A_COLUMN.match(item):
            _add_column(columns, item, after=None)
    found = {clause: pattern.search(rest) for clause, pattern in CLAUSES.items()}
    clauses = {clause: match[1].strip() for clause, match in found.items() if match}
    if "engine" in clauses:
        clauses["engine"] = re.sub(r"^\{engine:(.*)\}$", r"\1", clauses["engine"])
    return Table(name, comment, columns, **clauses)


def _add_column(columns: dict[str, str], definition: str, *, after: str | None) -> None:
    found = COLUMN.match(definition.strip())
    if found is None:
        raise ValueError(f"not a column definition: {definition!r}")
    names = list(columns)
    index = names.index(after) + 1 if after else len(names)
    behind = {name: columns.pop(name) for name in names[index:]}
    columns[found[1]] = found[2].strip()
    columns.update(behind)


def _column_list(definition: str) -> tuple[list[str], str]:
    """Split `(a T, b U(1, 2)) rest` into its items and the rest."""
    depth = 0
    items = [""]
    tokens = iter(TOKEN.findall(definition))
    for token in tokens:
        depth += (token == "(") - (token == ")")
        if depth == 0:
            return [item.strip() for item in items if item.strip()], "".join(tokens)
        if depth == 1 and token == ",":
            items.append("")
        elif not (depth == 1 and token == "("):
            items[-1] += token
    raise ValueError("a column list without end")
