"""Place panels on the grid of a board."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pipeline.dashboards.panel import COLUMNS, Panel


class Place(NamedTuple):
    """Where a panel stands, in grid units; y grows downwards."""

    x: int
    y: int
    width: int
    height: int


def placed(panels: Sequence[Panel], top: int = 0) -> list[tuple[Panel, Place]]:
    """Return each panel with its place, in rows from `top` on, each as high as its highest panel."""
    places: list[tuple[Panel, Place]] = []
    x, y, row_height = 0, top, 0
    for panel in panels:
        if x + panel.width > COLUMNS:
            x, y, row_height = 0, y + row_height, 0
        places.append((panel, Place(x, y, panel.width, panel.height)))
        x += panel.width
        row_height = max(row_height, panel.height)
    return places


def bottom(places: Sequence[tuple[Panel, Place]], top: int = 0) -> int:
    """Return the first free y below the panels."""
    return max((place.y + place.height for _, place in places), default=top)
