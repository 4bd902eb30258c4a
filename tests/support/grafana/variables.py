"""What Grafana sends for a statement: variables and macros replaced.

Rules as written in grafana/scenes, `MultiValueVariable.ts` (`CustomAllValue` is not formatted, an empty one
does not count) and `DataSourceVariable.tsx`; the format `singlequote`; and
grafana/clickhouse-datasource 4.20.0, `pkg/macros/macros.go`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple


class Range(NamedTuple):
    start: datetime
    end: datetime
    interval: int
    known: Mapping[str, Sequence[str]] = {}
    """{variable: the values that its own query found}."""


def sent(sql: str, variables: Sequence[Mapping[str, Any]], chosen: Mapping[str, Any], over: Range) -> str:
    """Return the statement; `chosen` is {variable: its values}, all where it is not named."""
    for variable in variables:
        name = variable["name"]
        if variable["type"] == "query" and name in chosen:
            value = _quoted(chosen[name])
        else:
            value = variable.get("allValue") or _quoted(over.known.get(name, ()))
        sql = sql.replace(f"${{{name}:singlequote}}", value)
    sql = sql.replace("$__fromTime", f"toDateTime({int(over.start.timestamp())})")
    sql = sql.replace("$__toTime", f"toDateTime({int(over.end.timestamp())})")
    sql = sql.replace("$__interval_s", str(max(over.interval, 1)))
    assert "$" not in sql, sql
    return sql


def source(variable: Mapping[str, Any], sources: Mapping[str, str]) -> str | None:
    """Return the uid of the data source that a fresh board takes, of {uid: name} of the plugin's type."""
    pattern = variable.get("regex", "")
    found = None if not pattern else re.fullmatch(r"/(.*)/(i?)", pattern)
    matching = [
        uid
        for uid, name in sources.items()
        if found is None or re.search(found[1], name, re.IGNORECASE if found[2] else 0)
    ]
    preferred = variable.get("current", {}).get("value")
    if preferred in matching:
        return str(preferred)
    return matching[0] if matching else None


def _quoted(values: Sequence[str]) -> str:
    return ",".join("'" + each.replace("'", "\\'") + "'" for each in values)
