"""Whether rows fit the columns of their tables, by the driver's own encoding and without a server."""

from __future__ import annotations

from collections.abc import Sequence

from clickhouse_connect.datatypes import registry
from clickhouse_connect.driver.insert import InsertContext

from pipeline.generated.pages.tables import tables_and_views
from schemas.rows import Row


class TableColumns:
    """The columns of the tables as the files write them down."""

    def __init__(self) -> None:
        tables, _ = tables_and_views()
        self._types = {
            name: {column: registry.get_from_name(kind) for column, kind in table.columns.items()}
            for name, table in tables.items()
        }

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
