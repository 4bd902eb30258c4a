"""A panel's SQL in the dialect of Grafana's ClickHouse data source (v4)."""

from __future__ import annotations

from typing import Literal

import msgspec

from pipeline.dashboards.panel import PARAMETERS, Panel, UnknownParameter, used_parameters
from pipeline.dashboards.queries import whole_windows

DATA_SOURCE_TYPE = "grafana-clickhouse-datasource"
DATA_SOURCE_UID = "kvlens"
"""The uid of the provisioned data source. Alert rules can name no other; boards prefer it."""
PLUGIN_VERSION = "4.20.0"

_DIALECT = {
    "from": "$__fromTime",
    "to": "$__toTime",
    "step": "$__interval_s",
    "model": "[${model:singlequote}]",
    "replica": "[${replica:singlequote}]",
    "role": "[${role:singlequote}]",
}
"""What replaces each parameter; the array forms work for one, several, all and no chosen values."""
ALL = "/* all */"
"""What is between the brackets for all values: only a comment, however many there are. For an empty text
Grafana would write out every name that it knows."""

Format = Literal[0, 1]
TIME_SERIES: Format = 0
TABLE: Format = 1


class DataSource(msgspec.Struct, frozen=True):
    type: str
    uid: str


class Meta(msgspec.Struct, frozen=True):
    timezone: str = "UTC"


class Query(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One target of a panel or alert rule; the backend reads `format`."""

    ref_id: str
    datasource: DataSource
    raw_sql: str
    format: Format
    query_type: Literal["timeseries", "table"]
    editor_type: Literal["sql"] = "sql"
    plugin_version: str = PLUGIN_VERSION
    meta: Meta = Meta()


def grafana_sql(owner: str, sql: str, allowed: frozenset[str] = frozenset(PARAMETERS)) -> str:
    """Return SQL with Grafana's macros and variables for parameters; raises UnknownParameter."""
    text = sql.strip()
    for name, kind in used_parameters(owner, sql).items():
        if name not in allowed:
            raise UnknownParameter(owner, f"{{{name}:{kind}}}")
        text = text.replace(f"{{{name}:{kind}}}", _DIALECT[name])
    return text


def panel_sql(panel: Panel) -> str:
    """Return the SQL that a panel asks, its rows in the shape from which Grafana makes series."""
    if panel.shared is not None:
        return grafana_sql(panel.shared.id, panel.shared.sql)
    if panel.kind == "heatmap":
        return grafana_sql(panel.id, _rows_of_heat(panel.sql))
    if panel.kind == "state_timeline":
        return grafana_sql(panel.id, _numbered_states(panel))
    if panel.kind == "flow":
        return grafana_sql(panel.id, _bars_of_flow(panel))
    return grafana_sql(panel.id, panel.sql)


def _rows_of_heat(sql: str) -> str:
    """Return rows `time`, `le`, `Value`.

    A bucket becomes a series only if its bound is text. The series is named by its bound, by which the
    heatmap sorts rows, only if the figure is called `Value`. The heatmap takes `time` for the end of a cell,
    while the views `*_series` give its start, and round the step up to windows of the table they read. All
    rows are drawn, so empty ones below and above all others are left out.
    """
    return f"""
WITH{whole_windows("{step:UInt32}")}
SELECT time + toIntervalSecond(width) AS time, toString(bucket) AS le, value AS Value
FROM
(
SELECT *, minIf(bucket, value > 0) OVER () AS lowest, maxIf(bucket, value > 0) OVER () AS highest
FROM
(
{sql.strip()}
)
)
WHERE bucket BETWEEN lowest AND highest
ORDER BY time, bucket"""


def _bars_of_flow(panel: Panel) -> str:
    """Return a row for each part that is divided, with a column for each part: Grafana draws no flows."""
    parts = ",".join(f"\n    sumIf(tokens, `into` = '{part}') AS `{part}`" for part in panel.colours)
    return f"""
SELECT
    `from`,{parts}
FROM
(
{panel.sql.strip()}
)
GROUP BY `from`
ORDER BY sum(tokens) DESC"""


def _numbered_states(panel: Panel) -> str:
    """Return the rows with numbers for states, counted from 1: a text would be a label, not a value."""
    states = ", ".join(f"'{state}'" for state in panel.colours)
    return f"""
SELECT time, {panel.named_by}, indexOf([{states}], state) AS state
FROM
(
{panel.sql.strip()}
)
ORDER BY time, {panel.named_by}"""
