"""Compares minutes and hours, in ClickHouse, with what the workers' own statements compute for them.

Workers decide nothing in these rows: they are sums of rows that are recounted from the log. Tests compare the
statements with sums of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pipeline.clickhouse.sql_files import rollup
from pipeline.verify.store import StoredTables

_STATEMENT = re.compile(
    r"INSERT INTO \{database\}\.\w+\s*\((?P<columns>.*?)\)\s*(?P<select>SELECT\b.*)", re.S
)
_OF_SOME_PERIODS = re.compile(r"\s+AND has\(\{periods:[^\n]*")
_RANGE = "window >= {from:DateTime('UTC')} AND window < {to:DateTime('UTC')}"


class StoredRollups:
    """The tables of minutes and hours of one database. Every call raises StoreUnavailable."""

    def __init__(self, tables: StoredTables) -> None:
        self._tables = tables
        self.minutes_due = tables.minutes_due

    def rows_by_day(self, name: str, per: str, begin: datetime) -> dict[datetime, int]:
        """Return the days from `begin` on that have any rows, and how many rollup rows each has."""
        statement = f"""
            SELECT day, sum(rows) AS rows
            FROM
            (
                SELECT toStartOfDay(window) AS day, count() AS rows
                FROM {{database}}.{name}_{per} FINAL WHERE window >= {{from:DateTime('UTC')}} GROUP BY day
                UNION ALL
                SELECT DISTINCT toStartOfDay(window) AS day, 0 AS rows
                FROM {{database}}.{name}_10s WHERE window >= {{from:DateTime('UTC')}}
            )
            GROUP BY day"""
        return {row["day"]: row["rows"] for row in self._tables.asked(statement, {"from": begin})}

    def differing(self, name: str, per: str, begin: datetime, end: datetime) -> Iterator[dict[str, Any]]:
        """Yield the rows of periods from `begin` to before `end` that are only in the table or only computed.

        `computed` says which of the two.
        """
        parameters = {"from": begin, "to": end, "version": 0}
        return self._tables.asked(_differing(name, per), parameters)


def _differing(name: str, per: str) -> str:
    columns = ", ".join(column for column in _columns(f"{name}_{per}") if column != "version")
    computed = _computed(f"{name}_{per}")
    if per == "1h":
        # Compute from correct minutes, whatever the table of minutes says.
        minutes = f"({_computed(f'{name}_1m')}) AS fine"
        computed = computed.replace(f"{{database}}.{name}_1m AS fine FINAL", minutes)
    # The table comes first: it may be older than the ten-second rows, never newer.
    return f"""
        SELECT {columns}, any(side) AS computed
        FROM
        (
            SELECT {columns}, 0 AS side FROM {{database}}.{name}_{per} FINAL WHERE {_RANGE}
            UNION ALL
            SELECT {columns}, 1 AS side FROM ({computed})
        )
        GROUP BY {columns}
        HAVING count() = 1"""


def _computed(table: str) -> str:
    """Return the statement that computes all periods of a range, with the table's column names and types."""
    select = _OF_SOME_PERIODS.sub("", _statement(table)["select"])
    return f"SELECT {', '.join(_columns(table))} FROM {{database}}.{table} WHERE 0 UNION ALL {select}"


def _columns(table: str) -> list[str]:
    return re.findall(r"\w+", _statement(table)["columns"])


def _statement(table: str) -> re.Match[str]:
    found = _STATEMENT.search(rollup(table))
    if found is None:
        raise ValueError(f"the statement of {table} is no INSERT with columns and a SELECT")
    return found
