"""The parts of Grafana's dashboard JSON that boards are made of (schema of Grafana 11.6)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pipeline.dashboards.grafana.query import DataSource, Query

SCHEMA_VERSION = 41
SMALLEST_STEP = "10s"
TAG = "kvlens"

PanelType = Literal["stat", "timeseries", "heatmap", "barchart", "table", "state-timeline", "row", "text"]


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
    targets: list[Any] = []
    """A Query, or a SharedQuery: JSON does not say which."""
    transformations: list[dict[str, Any]] = []
    field_config: dict[str, Any] = {}
    options: dict[str, Any] = {}


class Variable(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    name: str
    type: Literal["datasource", "query"]
    label: str
    query: str
    datasource: DataSource | None = None
    refresh: Literal[1, 2] = 1
    regex: str = ""
    include_all: bool = False
    all_value: str = ""
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
    refresh: str = SMALLEST_STEP
    timezone: str = "browser"
    editable: bool = False
    graph_tooltip: int = 1
    schema_version: int = SCHEMA_VERSION
    version: int = 1
