"""What the schema of a figure says beyond types: which fields are the key, which version wins, units."""

from __future__ import annotations

import re
from typing import Any

from pipeline.clickhouse.sql_files import migrations
from pipeline.generated.sql_tables import parse
from schemas.figures import FIGURES

UNITS = {
    "_tokens": "tokens",
    "_blocks": "blocks",
    "_bytes": "bytes",
    "_seconds": "seconds",
    "_batches": "batches",
    "_events": "events",
    "_objects": "objects",
    "_accesses": "accesses",
}
"""{end of `_` and a column's name: what the column counts}."""
_LEADING = re.compile(r"^\w+\((\w+)\)$")

_COLUMNS_OF_A_KEY = re.compile(r",\s*(?![^()]*\))")


def said_of_figures() -> dict[str, dict[str, Any]]:
    """Return {name of a figure's record: what its schema says beyond types}."""
    tables, _ = parse([statement for each in migrations() for statement in each.statements])
    return {
        figure.__name__: {
            "x-key": key_of(tables[kind.TABLE].key),  # type: ignore[attr-defined]
            "x-version": "version",
            "x-rule": "Of records with one key the one with the highest version counts, of equal versions "
            "the later one.",
        }
        for kind, figure in FIGURES.items()
    }


def key_of(order_by: str) -> list[str]:
    """Return the columns that name a row, given the sort key of its table.

    The expression that leads the sort key of a table, so that a time range reads few granules, is left out if
    it follows from a column of the key.
    """
    parts = _COLUMNS_OF_A_KEY.split(order_by.removeprefix("(").removesuffix(")"))
    leading = _LEADING.match(parts[0])
    return parts[1:] if leading and leading[1] in parts[1:] else parts


def unit_of(column: str) -> str | None:
    """Return what a column counts; None where its name does not say."""
    return next((unit for end, unit in UNITS.items() if f"_{column}".endswith(end)), None)
