"""A board as Grafana's dashboard JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pipeline.dashboards.grafana.appearance import field_config, options
from pipeline.dashboards.grafana.model import (
    SMALLEST_STEP,
    Annotations,
    Dashboard,
    GrafanaAnnotation,
    GrafanaPanel,
    GridPosition,
    PanelType,
    Templating,
    Variable,
)
from pipeline.dashboards.grafana.query import (
    ALL,
    DATA_SOURCE_TYPE,
    DATA_SOURCE_UID,
    TABLE,
    TIME_SERIES,
    DataSource,
    Query,
    grafana_sql,
    panel_sql,
)
from pipeline.dashboards.grafana.sharing import OF_ANOTHER_PANEL, SharedQuery, transformations
from pipeline.dashboards.panel import COLUMNS, Annotation, Board, Choice, Kind, Panel
from pipeline.dashboards.queries import CHOICES

SHARED_REFRESH = "1m"
"""Of a board with a shared statement, as that is expensive; in Grafana a panel has no interval of its own."""
HERE = DataSource(DATA_SOURCE_TYPE, "${datasource}")

_TYPES: dict[Kind, PanelType] = {
    "stat": "stat",
    "timeseries": "timeseries",
    "stacked": "timeseries",
    "heatmap": "heatmap",
    "bar": "barchart",
    "table": "table",
    "state_timeline": "state-timeline",
    "curve": "table",
    "lanes": "state-timeline",
    "flow": "barchart",
    "answer": "table",
    "findings": "table",
}


class Place(NamedTuple):
    """Where a panel is: the uid of its dashboard, its number there."""

    dashboard: str
    panel: int


def places(boards: tuple[Board, ...]) -> dict[str, Place]:
    """Return {id of a panel: its place}; one that is on several boards is where it comes first."""
    found: dict[str, Place] = {}
    for board in boards:
        number = 0
        for section in board.sections:
            number += 1  # the heading
            for panel in section.panels:
                number += 1
                found.setdefault(panel.id, Place(_uid(board), number))
    return found


def compiled(board: Board) -> Dashboard:
    """Return the dashboard of a board."""
    panels: list[GrafanaPanel] = []
    asking: dict[str, int] = {}  # {id of a shared statement: the number of the panel that asks it}
    top = 0
    for section in board.sections:
        panels.append(
            GrafanaPanel(
                id=len(panels) + 1, type="row", title=section.title, grid_pos=GridPosition(0, top, COLUMNS, 1)
            )
        )
        placed, top = arranged(section.panels, top + 1)
        for panel, place in placed:
            number = len(panels) + 1
            asked_by = asking.setdefault(panel.shared.id, number) if panel.shared else number
            panels.append(_panel(number, panel, place, asked_by))
    return Dashboard(
        uid=_uid(board),
        title=f"kvlens: {board.title}",
        description=board.description,
        panels=panels,
        templating=Templating([_data_source_variable(), *map(_variable, board.choices)]),
        annotations=Annotations([_annotation(annotation) for annotation in board.annotations]),
        refresh=SHARED_REFRESH if asking else SMALLEST_STEP,
    )


def arranged(panels: Sequence[Panel], top: int) -> tuple[list[tuple[Panel, GridPosition]], int]:
    """Return each panel with its place, in rows as high as their highest panel, and the first free y below.

    The first row is at `top`; y grows downwards.
    """
    placed: list[tuple[Panel, GridPosition]] = []
    x, y, row_height = 0, top, 0
    for panel in panels:
        if x + panel.width > COLUMNS:
            x, y, row_height = 0, y + row_height, 0
        placed.append((panel, GridPosition(x, y, panel.width, panel.height)))
        x += panel.width
        row_height = max(row_height, panel.height)
    return placed, y + row_height


def _uid(board: Board) -> str:
    return f"kvlens-{board.id}"


def _panel(number: int, panel: Panel, place: GridPosition, asked_by: int) -> GrafanaPanel:
    asks = asked_by == number
    return GrafanaPanel(
        id=number,
        type=_TYPES[panel.kind],
        title=panel.title,
        description=panel.description,
        grid_pos=place,
        datasource=HERE if asks else OF_ANOTHER_PANEL,
        interval=SMALLEST_STEP,
        targets=[_query(panel) if asks else SharedQuery(ref_id="A", panel_id=asked_by)],
        transformations=transformations(panel),
        field_config=field_config(panel),
        options=options(panel),
    )


def _query(panel: Panel) -> Query:
    as_series = panel.kind in ("timeseries", "stacked", "heatmap", "state_timeline", "lanes")
    return Query(
        ref_id="A",
        datasource=HERE,
        raw_sql=panel_sql(panel),
        format=TIME_SERIES if as_series else TABLE,
        query_type="timeseries" if as_series else "table",
    )


def _annotation(annotation: Annotation) -> GrafanaAnnotation:
    query = Query(
        ref_id="Anno",
        datasource=HERE,
        raw_sql=grafana_sql(annotation.id, annotation.sql),
        format=TABLE,
        query_type="table",
    )
    return GrafanaAnnotation(name=annotation.title, datasource=HERE, target=query)


def _data_source_variable() -> Variable:
    """Return the choice among data sources with kvlens in their names: no others have its tables."""
    return Variable(
        name="datasource",
        type="datasource",
        label="Data source",
        query=DATA_SOURCE_TYPE,
        regex="/kvlens/i",
        current={"text": "kvlens", "value": DATA_SOURCE_UID},
    )


def _variable(choice: Choice) -> Variable:
    return Variable(
        name=choice,
        type="query",
        label=choice.capitalize(),
        query=grafana_sql(choice, CHOICES[choice]),
        datasource=HERE,
        refresh=2,
        include_all=True,
        all_value=ALL,
        multi=True,
        sort=1,
        current={"text": ["All"], "value": ["$__all"]},
    )
