"""A board as Grafana's dashboard JSON (schema of Grafana 11.6)."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

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
from pipeline.dashboards.layout import GridArea, arranged, bottom
from pipeline.dashboards.panel import COLUMNS, Annotation, Board, Choice, Kind, Panel, Unit
from pipeline.dashboards.queries import MOST_LANES, ROLE

SCHEMA_VERSION = 41
SMALLEST_STEP = "10s"
DEAR_REFRESH = "1m"
"""Of a board with a statement that several panels share because it is dear; Grafana knows no panel's own."""
TAG = "kvlens"
HERE = DataSource(DATA_SOURCE_TYPE, "${datasource}")

PanelType = Literal["stat", "timeseries", "heatmap", "barchart", "table", "state-timeline", "row", "text"]

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
_TEXTS = ("table", "curve", "answer", "findings")
_UNITS: dict[Unit, str] = {
    "blocks": "short",
    "tokens": "short",
    "blocks/s": "count:blocks/s",
    "tokens/s": "count:tokens/s",
    "batches": "short",
    "events/s": "count:events/s",
    "sources": "short",
    "share": "percentunit",
    "seconds": "s",
    "bytes": "bytes",
    "GPUs": "count:GPUs",
    "GPU-hours": "short",
}
"""`count:` scales like `short` and keeps the name: 4.56K tokens/s. `si:` would say 500 mtokens/s for half a
token, and 4.56 datokens/s where Grafana counts deca among its thousands."""
_CHOSEN = "${__value.raw:percentencode}"
_LEADS_TO = {
    "model": ("Open this model", "model", f"&var-model={_CHOSEN}"),
    "replica": ("Open this replica", "replica", f"&${{model:queryparam}}&var-replica={_CHOSEN}"),
    "shown on": ("Open this board", _CHOSEN, "&${model:queryparam}"),
}
"""{column of a table: what its link is called, the board that it leads to, and what is chosen there}."""
_VALUES_OF = {
    "model": "SELECT DISTINCT model FROM sources ORDER BY model",
    "role": f"SELECT DISTINCT {ROLE} AS told FROM replica_roles ORDER BY told",
    "replica": "SELECT DISTINCT replica FROM sources "
    "WHERE empty([${model:singlequote}]) OR has([${model:singlequote}], model) ORDER BY replica",
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
        areas = arranged(section.panels, top + 1)
        for panel, area in areas:
            number = len(panels) + 1
            asked_by = asking.setdefault(panel.shared.id, number) if panel.shared else number
            panels.append(_panel(number, panel, area, asked_by))
        top = bottom(areas, top + 1)
    return Dashboard(
        uid=_uid(board),
        title=f"kvlens: {board.title}",
        description=board.description,
        panels=panels,
        templating=Templating([_data_source_variable(), *map(_variable, board.choices)]),
        annotations=Annotations([_annotation(annotation) for annotation in board.annotations]),
        refresh=DEAR_REFRESH if asking else SMALLEST_STEP,
    )


def _uid(board: Board) -> str:
    return f"kvlens-{board.id}"


def _panel(number: int, panel: Panel, area: GridArea, asked_by: int) -> GrafanaPanel:
    asks = asked_by == number
    return GrafanaPanel(
        id=number,
        type=_TYPES[panel.kind],
        title=panel.title,
        description=panel.description,
        grid_pos=GridPosition(area.x, area.y, area.width, area.height),
        datasource=HERE if asks else OF_ANOTHER_PANEL,
        interval=SMALLEST_STEP,
        targets=[_query(panel) if asks else SharedQuery(ref_id="A", panel_id=asked_by)],
        transformations=transformations(panel),
        field_config=_field_config(panel),
        options=_options(panel),
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


def _field_config(panel: Panel) -> dict[str, Any]:
    shaded = panel.kind == "timeseries" and bool(panel.thresholds)
    steps: list[dict[str, Any]] = [{"color": "transparent" if shaded else "text", "value": None}]
    steps += [{"color": threshold.colour, "value": threshold.at} for threshold in panel.thresholds]
    defaults: dict[str, Any] = {
        "unit": "string" if panel.kind in _TEXTS else _UNITS[panel.unit],
        "custom": _custom(panel),
        "color": {"mode": _colour_mode(panel)},
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.unit == "share":
        # What is above the threshold is shaded: the scale ends where the figures do.
        defaults |= {"min": 0} if shaded else {"min": 0, "max": 1}
    if panel.named_by:
        # Without it a series is called after its figure and its label, such as `tokens gpu`.
        defaults["displayName"] = f"${{__field.labels.{panel.named_by}}}"
    if panel.kind == "state_timeline":
        defaults |= {"mappings": [_states(panel)], "noValue": panel.empty}
        return {"defaults": defaults, "overrides": []}
    if panel.kind == "lanes":
        defaults |= {"mappings": [_BEYOND]}
    overrides = [_coloured(*each) for each in panel.colours.items()]
    if panel.kind in _TEXTS:
        overrides += [_linked(column, *link) for column, link in _LEADS_TO.items()]
    return {"defaults": defaults, "overrides": overrides}


_BEYOND = {
    "type": "range",
    "options": {
        "from": 1.000001,
        "to": 1e6,
        "result": {"text": "more than there is", "color": "dark-purple"},
    },
}
"""How a share above 1 is shown. A range without an end contains no number in Grafana 11: there null is 0."""


def _colour_mode(panel: Panel) -> str:
    if panel.kind == "lanes":
        return "continuous-RdYlGr" if panel.low_is_bad else "continuous-GrYlRd"
    return "thresholds" if panel.thresholds and panel.kind == "stat" else "palette-classic-by-name"


def _custom(panel: Panel) -> dict[str, Any]:
    """Return what the type of a panel adds to the options of a field."""
    if panel.kind in ("state_timeline", "lanes"):
        return {"fillOpacity": 80, "lineWidth": 0, "spanNulls": False}
    if panel.kind not in ("timeseries", "stacked"):
        return {}
    stacked = panel.kind == "stacked"
    return {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 60 if stacked else 10,
        "showPoints": "never",
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        **({"thresholdsStyle": {"mode": "area"}} if panel.thresholds else {}),
    }


def _states(panel: Panel) -> dict[str, Any]:
    """Return the mapping of the numbers of states (`query.panel_sql`) to their names and colours."""
    return {
        "type": "value",
        "options": {
            str(number): {"text": state, "color": colour, "index": number - 1}
            for number, (state, colour) in enumerate(panel.colours.items(), start=1)
        },
    }


def _coloured(name: str, colour: str) -> dict[str, Any]:
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
    }


def _linked(column: str, title: str, board: str, chosen: str) -> dict[str, Any]:
    """Return the link from a cell to its board, with range and data source kept."""
    url = f"/d/kvlens-{board}?${{__url_time_range}}&${{datasource:queryparam}}{chosen}"
    return {
        "matcher": {"id": "byName", "options": column},
        "properties": [{"id": "links", "value": [{"title": title, "url": url}]}],
    }


def _options(panel: Panel) -> dict[str, Any]:
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
    if panel.kind in ("timeseries", "stacked"):
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"], "values": False}, "colorMode": "value"}
    if panel.kind == "heatmap":
        return {
            "calculate": False,
            "rowsFrame": {"layout": "le"},
            "filterValues": {"le": 1e-9},
            "color": {"scheme": "Viridis", "mode": "scheme"},
            "yAxis": {"unit": _UNITS[panel.unit]},
        }
    if panel.kind in ("bar", "flow"):
        return {
            "orientation": "horizontal",
            "xTickLabelSpacing": 0,
            "stacking": "none" if panel.unit == "share" else "normal",
            "legend": legend,
            "tooltip": {"mode": "multi", "sort": "none"},
        }
    if panel.kind == "state_timeline":
        return {"mergeValues": True, "showValue": "never", "rowHeight": 0.9, "legend": legend}
    if panel.kind == "lanes":
        # A page of all lanes: by itself Grafana shows twenty.
        return {
            "mergeValues": False,
            "showValue": "never",
            "rowHeight": 1,
            "perPage": MOST_LANES,
            "legend": {**legend, "showLegend": False},
        }
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
    """Return the choice among sources called after kvlens: no other has its tables."""
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
        query=_VALUES_OF[choice],
        datasource=HERE,
        refresh=2,
        include_all=True,
        all_value=ALL,
        multi=True,
        sort=1,
        current={"text": ["All"], "value": ["$__all"]},
    )
