"""Arranges panels on the grid of a board."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pipeline.dashboards.panel import COLUMNS, Panel


class GridArea(NamedTuple):
    """Where a panel is, in grid units; y grows downwards."""

    x: int
    y: int
    width: int
    height: int


def arranged(panels: Sequence[Panel], top: int = 0) -> list[tuple[Panel, GridArea]]:
    """Return each panel with its area, in rows from `top` on, each as high as its highest panel."""
    areas: list[tuple[Panel, GridArea]] = []
    x, y, row_height = 0, top, 0
    for panel in panels:
        if x + panel.width > COLUMNS:
            x, y, row_height = 0, y + row_height, 0
        areas.append((panel, GridArea(x, y, panel.width, panel.height)))
        x += panel.width
        row_height = max(row_height, panel.height)
    return areas


def bottom(areas: Sequence[tuple[Panel, GridArea]], top: int = 0) -> int:
    """Return the first free y below the panels."""
    return max((area.y + area.height for _, area in areas), default=top)
