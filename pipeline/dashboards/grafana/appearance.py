"""How a panel looks in Grafana: its field config and its options."""

from __future__ import annotations

from typing import Any

from pipeline.dashboards.panel import Panel, Unit
from pipeline.dashboards.queries import MOST_LANES

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
_BEYOND = {
    "type": "range",
    "options": {
        "from": 1.000001,
        "to": 1e6,
        "result": {"text": "more than there is", "color": "dark-purple"},
    },
}
"""How a share above 1 is shown. A range without an end contains no number in Grafana 11: there null is 0."""


def field_config(panel: Panel) -> dict[str, Any]:
    """Return units, colours, thresholds and links."""
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


def options(panel: Panel) -> dict[str, Any]:
    """Return the options of the panel's type: what to draw, and how."""
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
        # All lanes on one page: the default is twenty.
        return {
            "mergeValues": False,
            "showValue": "never",
            "rowHeight": 1,
            "perPage": MOST_LANES,
            "legend": {**legend, "showLegend": False},
        }
    return {}
