"""Panels of a board that show parts of one statement: the first of them asks, the others take its result.

Each keeps its own rows and columns by Grafana's transformations. The source `-- Dashboard --` hands on what
the panel that asks got, before that panel's own transformations.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pipeline.dashboards.grafana.query import DataSource
from pipeline.dashboards.panel import Panel

OF_ANOTHER_PANEL = DataSource("datasource", "-- Dashboard --")
PART = "part"
"""The column of a shared statement that says to which panel a row belongs."""


class SharedQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The target of a panel that takes the result of another one of its board."""

    ref_id: str
    panel_id: int
    datasource: DataSource = OF_ANOTHER_PANEL
    with_transforms: bool = False


def transformations(panel: Panel) -> list[dict[str, Any]]:
    """Return what selects a panel's rows and columns from those of its shared statement, if it has one."""
    if panel.shared is None:
        return []
    names = {column: name for name, column in panel.shows.items()}
    hidden = [column for column in panel.shared.columns if column not in names]
    own = {"fieldName": PART, "config": {"id": "equal", "options": {"value": panel.part}}}
    return [
        {"id": "filterByValue", "options": {"type": "include", "match": "all", "filters": [own]}},
        {
            "id": "organize",
            "options": {
                "excludeByName": dict.fromkeys(hidden, True),
                "fieldOrder": "manual",
                "indexByName": {column: place for place, column in enumerate(names)},
                "renameByName": {column: name for column, name in names.items() if column != name},
            },
        },
    ]
