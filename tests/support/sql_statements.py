"""All statements that make the tables and views of an empty database."""

from __future__ import annotations

from pipeline.clickhouse.layout import placed
from pipeline.clickhouse.sql_files import migrations
from pipeline.clickhouse.view_files import views
from schemas.settings import ClickHouse


def tables() -> list[str]:
    """Return those of the tables, as the files have them."""
    return [statement for migration in migrations() for statement in migration.statements]


def everything(store: ClickHouse) -> list[str]:
    """Return those of tables and views, as this store gets them, in order."""
    pieces = [*tables(), *(view.text for view in views())]
    return [statement for piece in pieces for statement in placed(piece, store)]
