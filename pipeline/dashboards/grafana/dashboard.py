"""A board as Grafana's dashboard JSON (schema of Grafana 11.6)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pipeline.dashboards.grafana.query import (
    DATA_SOURCE_TYPE,
    TABLE,
    TIME_SERIES,
    DataSource,
    Query,
    grafana_sql,
)
from pipeline.dashboards.layout import GridArea, arranged, bottom
from pipeline.dashboards.panel import COLUMNS, Annotation, Board, Choice, Kind, Panel, Unit

SCHEMA_VERSION = 41
SMALLEST_STEP = "10s"
TAG = "kvlens"
HERE = DataSource(DATA_SOURCE_TYPE, "${datasource}")

PanelType = Literal["stat", "timeseries", "heatmap", "barchart", "table", "state-timeline", "row"]

_TYPES: dict[Kind, PanelType] = {
    "stat": "stat",
    "timeseries": "timeseries",
    "stacked": "timeseries",
    "heatmap": "heatmap",
    "bar": "barchart",
    "table": "table",
    "state_timeline": "state-timeline",
}
_UNITS: dict[Unit, str] = {
    "blocks": "short",
    "tokens": "short",
    "blocks/s": "suffix: blocks/s",
    "tokens/s": "suffix: tokens/s",
    "batches": "short",
    "events/s": "suffix: events/s",
    "sources": "short",
    "share": "percentunit",
    "seconds": "s",
    "bytes": "bytes",
}
_VALUES_OF = {
    "model": "SELECT DISTINCT model FROM sources ORDER BY model",
    "replica": "SELECT DISTINCT replica FROM sources WHERE has([${model:singlequote}], model) "
    "ORDER BY replica",
}


class GridPosition(msgspec.Struct, frozen=True):
    x: int
    y: int
    w: int
    h: int


class GrafanaPanel(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A panel or, of type `row`, a heading."""

    id: int
    type: PanelType
    title: str
    grid_pos: GridPosition
    description: str = ""
    datasource: DataSource | None = None
    interval: str = ""
    targets: list[Query] = []
    field_config: dict[str, Any] = {}
    options: dict[str, Any] = {}


class Variable(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    name: str
    type: Literal["datasource", "query"]
    label: str
    query: str
    datasource: DataSource | None = None
    refresh: Literal[1, 2] = 1
    include_all: bool = False
    multi: bool = False
    sort: int = 0
    current: dict[str, Any] = {}


class GrafanaAnnotation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    datasource: DataSource
    target: Query
    icon_color: str = "purple"
    enable: bool = True


class Link(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The other boards, with the chosen range and values kept."""

    title: str = "kvlens"
    type: str = "dashboards"
    tags: tuple[str, ...] = (TAG,)
    as_dropdown: bool = False
    include_vars: bool = True
    keep_time: bool = True


class Annotations(msgspec.Struct, frozen=True, rename={"entries": "list"}):
    entries: list[GrafanaAnnotation]


class Templating(msgspec.Struct, frozen=True, rename={"entries": "list"}):
    entries: list[Variable]


class TimeRange(msgspec.Struct, frozen=True):
    to: str = "now"
    from_: str = msgspec.field(default="now-1h", name="from")


class Dashboard(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    uid: str
    title: str
    description: str
    panels: list[GrafanaPanel]
    templating: Templating
    annotations: Annotations
    links: tuple[Link, ...] = (Link(),)
    tags: tuple[str, ...] = (TAG,)
    time: TimeRange = TimeRange()
    refresh: str = "10s"
    timezone: str = "browser"
    editable: bool = False
    graph_tooltip: int = 1
    schema_version: int = SCHEMA_VERSION
    version: int = 1


def compiled(board: Board) -> Dashboard:
    """Return the dashboard of a board."""
    panels: list[GrafanaPanel] = []
    top = 0
    for section in board.sections:
        panels.append(
            GrafanaPanel(
                id=len(panels) + 1, type="row", title=section.title, grid_pos=GridPosition(0, top, COLUMNS, 1)
            )
        )
        areas = arranged(section.panels, top + 1)
        for panel, area in areas:
            panels.append(_panel(len(panels) + 1, panel, area))
        top = bottom(areas, top + 1)
    return Dashboard(
        uid=f"kvlens-{board.id}",
        title=f"kvlens: {board.title}",
        description=board.description,
        panels=panels,
        templating=Templating([_data_source_variable(), *map(_variable, board.choices)]),
        annotations=Annotations([_annotation(annotation) for annotation in board.annotations]),
    )


def _panel(number: int, panel: Panel, area: GridArea) -> GrafanaPanel:
    as_series = panel.kind in ("timeseries", "stacked", "heatmap", "state_timeline")
    query = Query(
        ref_id="A",
        datasource=HERE,
        raw_sql=grafana_sql(panel.id, panel.sql),
        format=TIME_SERIES if as_series else TABLE,
        query_type="timeseries" if as_series else "table",
    )
    return GrafanaPanel(
        id=number,
        type=_TYPES[panel.kind],
        title=panel.title,
        description=panel.description,
        grid_pos=GridPosition(area.x, area.y, area.width, area.height),
        datasource=HERE,
        interval=SMALLEST_STEP,
        targets=[query],
        field_config=_field_config(panel),
        options=_options(panel),
    )


def _field_config(panel: Panel) -> dict[str, Any]:
    custom: dict[str, Any] = {}
    if panel.kind in ("timeseries", "stacked"):
        stacked = panel.kind == "stacked"
        custom = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 60 if stacked else 10,
            "showPoints": "never",
            "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        }
    steps: list[dict[str, Any]] = [{"color": "text", "value": None}]
    steps += [{"color": threshold.colour, "value": threshold.at} for threshold in panel.thresholds]
    defaults: dict[str, Any] = {
        "unit": "string" if panel.kind == "table" else _UNITS[panel.unit],
        "custom": custom,
        "color": {"mode": "thresholds" if panel.thresholds else "palette-classic-by-name"},
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.unit == "share":
        defaults |= {"min": 0, "max": 1}
    overrides = [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
        }
        for name, colour in panel.colours.items()
    ]
    return {"defaults": defaults, "overrides": overrides}


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind in ("timeseries", "stacked"):
        return {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"], "values": False}, "colorMode": "value"}
    if panel.kind == "heatmap":
        return {
            "calculate": False,
            "color": {"scheme": "Viridis", "mode": "scheme"},
            "yAxis": {"unit": _UNITS[panel.unit]},
        }
    if panel.kind == "bar":
        return {"orientation": "horizontal", "xTickLabelSpacing": 0}
    return {}


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
    return Variable(name="datasource", type="datasource", label="Data source", query=DATA_SOURCE_TYPE)


def _variable(choice: Choice) -> Variable:
    return Variable(
        name=choice,
        type="query",
        label=choice.capitalize(),
        query=_VALUES_OF[choice],
        datasource=HERE,
        refresh=2,
        include_all=True,
        multi=True,
        sort=1,
        current={"text": ["All"], "value": ["$__all"]},
    )
