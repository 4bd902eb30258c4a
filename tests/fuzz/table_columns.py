"""Whether rows fit the columns of their tables, by the driver's own encoding and without a server."""

from __future__ import annotations

import re
from collections.abc import Sequence

from clickhouse_connect.datatypes import registry
from clickhouse_connect.driver.insert import InsertContext

from schemas.rows import Row
from tests.support.checkout import ROOT

_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS \{database\}\.(\w+)\n\((.*?)\n\)", re.DOTALL)
_COLUMN = re.compile(r"^ {4}(\w+) (.+?)(?: CODEC\(.*| DEFAULT .*)?,?$", re.MULTILINE)
_ADDED = re.compile(
    r"ALTER TABLE \{database\}\.(\w+)\s+ADD COLUMN IF NOT EXISTS (\w+) "
    r"(.+?)(?: CODEC\(\S+\))?(?: AFTER \w+)?;"
)


class TableColumns:
    """The columns of the tables as the migrations write them down."""

    def __init__(self) -> None:
        text = "".join(path.read_text() for path in sorted((ROOT / "schemas/clickhouse").glob("*.sql")))
        self._types = {
            table: {name: registry.get_from_name(kind) for name, kind in _COLUMN.findall(columns)}
            for table, columns in _TABLE.findall(text)
        }
        for table, name, kind in _ADDED.findall(text):
            self._types[table][name] = registry.get_from_name(kind)

    def check(self, rows: Sequence[Row]) -> None:
        """Raises clickhouse_connect's DataError for a value that its column cannot hold."""
        by_kind: dict[type[Row], list[Row]] = {}
        for row in rows:
            by_kind.setdefault(type(row), []).append(row)
        for kind, of_kind in by_kind.items():
            types = self._types[kind.TABLE]
            for name in kind.__struct_fields__:
                values = [getattr(row, name) for row in of_kind]
                context = InsertContext(kind.TABLE, [name], [types[name]], [values], column_oriented=True)
                types[name].write_column(values, bytearray(), context)
