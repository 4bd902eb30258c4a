"""Records of `kvlens.figures.v1`: rows of the tables, each a flat JSON object with the name of its table.

A figure is a row that says something of a replica at a time. Its fields are the columns of its table, so it
is defined where those are (`schemas.rows`, `schemas.fleet_rows`). As in the tables, the columns that name a
row are its key, and the row with the highest `version` of a key counts, and of equal versions the later one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_args

import msgspec

from schemas.rows import Row

TABLE_FIELD = "table"
"""Says whose row a record is; it comes first."""
_TIMES = ("window", "time")


def _is_figure(kind: type[msgspec.Struct]) -> bool:
    fields = kind.__struct_fields__
    return "replica" in fields and any(name in fields for name in _TIMES)


def _record_of(kind: Any) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        kind.__name__.replace("Row", "Figure"),
        [],
        bases=(kind,),
        module=__name__,
        namespace={"__doc__": kind.__doc__},
        tag_field=TABLE_FIELD,
        tag=kind.TABLE,
        frozen=True,
        gc=False,
    )


FIGURES: dict[type[msgspec.Struct], type[msgspec.Struct]] = {
    kind: _record_of(kind) for kind in get_args(Row) if _is_figure(kind)
}
"""Row type of a table to the type of its records: the same fields behind `table`."""


def time_of(row: Any) -> datetime:
    """Return the time that a row is of: the start of its window, or its moment."""
    at: datetime = row.window if hasattr(row, "window") else row.time
    return at
