"""A panel's SQL in the dialect of Grafana's ClickHouse data source (v4)."""

from __future__ import annotations

from typing import Literal

import msgspec

from pipeline.dashboards.panel import PARAMETERS, UnknownParameter, used_parameters

DATA_SOURCE_TYPE = "grafana-clickhouse-datasource"
PLUGIN_VERSION = "4.20.0"

_DIALECT = {
    "from": "$__fromTime",
    "to": "$__toTime",
    "step": "$__interval_s",
    "model": "[${model:singlequote}]",
    "replica": "[${replica:singlequote}]",
}
"""What stands for each parameter; the array forms hold for one, several, all and no chosen value."""

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
