"""All statements that make the tables and views of an empty database."""

from __future__ import annotations

from pipeline.clickhouse.layout import placed
from pipeline.clickhouse.sql_files import migrations, split
from pipeline.clickhouse.view_files import views
from schemas.settings import ClickHouse


def tables() -> list[str]:
    """Return those of the tables, as the files have them."""
    return [piece for migration in migrations() for piece in split(migration.text)]


def everything(store: ClickHouse) -> list[str]:
    """Return those of tables and views, as this store gets them, in order."""
    pieces = [*tables(), *(view.text for view in views())]
    return [statement for piece in pieces for statement in placed(piece, store)]
