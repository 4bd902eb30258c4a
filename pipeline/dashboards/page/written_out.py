"""A panel's answer as a file, and its statement with every parameter filled in."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from pipeline.clickhouse.literals import quoted
from pipeline.dashboards.page.answers import Answer

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a cell that begins with one of these for a formula."""


def as_csv(answer: Answer) -> str:
    """Return the columns as in RFC 4180, times in UTC; what looks like a formula gets a quote in front."""
    text = io.StringIO()
    file = csv.writer(text)
    file.writerow(answer.names)
    kinds = [name in answer.times for name in answer.names]
    for row in zip(*answer.columns, strict=True):
        file.writerow(_cell(value, is_time) for value, is_time in zip(row, kinds, strict=True))
    return text.getvalue()


def with_values(sql: str, types: Mapping[str, str], values: Mapping[str, Any]) -> str:
    """Return the statement with literals for its parameters, whose types and values are given by name."""
    for name, kind in types.items():
        sql = sql.replace(f"{{{name}:{kind}}}", _literal(values[name]))
    return sql.strip() + "\n"


def _cell(value: Any, is_time: bool) -> Any:
    if is_time and value is not None:
        return f"{datetime.fromtimestamp(value, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _literal(value: Any) -> str:
    if isinstance(value, datetime):
        return f"toDateTime('{value.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}', 'UTC')"
    if isinstance(value, list):
        return f"CAST([{', '.join(map(_literal, value))}] AS Array(String))"
    if isinstance(value, str):
        return quoted(value)
    return str(value)
