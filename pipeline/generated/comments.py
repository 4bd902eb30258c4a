"""Comments of the tables in ClickHouse: the text of docs/tables.md."""

from __future__ import annotations

from pipeline.clickhouse.comments import FILE
from pipeline.generated.pages.tables import column_meanings, summary_of, tables_and_views
from pipeline.generated.records import as_json

PATH = f"schemas/clickhouse/{FILE}"


def comments_file() -> bytes:
    """Return the file."""
    tables, _ = tables_and_views()
    told = {}
    for name, table in tables.items():
        meanings = column_meanings(name)
        told[name] = {"": summary_of(table), **{column: meanings[column] for column in table.columns}}
    return as_json(told)
