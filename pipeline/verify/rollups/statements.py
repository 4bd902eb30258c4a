"""Minutes and hours beside what the statements that write them make of the ten-second rows, in ClickHouse.

No worker decides on anything in these rows: they are sums of rows that are recounted from the log. Tests hold
the statements against sums of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Protocol

from pipeline.clickhouse.sql_files import rollup

_STATEMENT = re.compile(
    r"INSERT INTO \{database\}\.\w+\s*\((?P<columns>.*?)\)\s*(?P<select>SELECT\b.*)", re.S
)
_OF_SOME_PERIODS = re.compile(r"\s+AND has\(\{periods:[^\n]*")
_RANGE = "window >= {from:DateTime('UTC')} AND window < {to:DateTime('UTC')}"


class Database(Protocol):
    """Where the rows are."""

    def asked(self, statement: str, parameters: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Give the rows of a statement, in which `{database}` is the database."""

    def minutes_due(self) -> Iterable[tuple[str, datetime]]:
        """Give the minutes, by the name that their tables begin with, that are to be recomputed."""


class StoredRollups:
    """The tables of minutes and hours of one database. Every call raises StoreUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.minutes_due = database.minutes_due

    def rows_by_day(self, name: str, per: str, begin: datetime) -> dict[datetime, int]:
        """Return the days from `begin` on that have any rows, and how many are of minutes or hours."""
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
        return {row["day"]: row["rows"] for row in self._database.asked(statement, {"from": begin})}

    def differing(self, name: str, per: str, begin: datetime, end: datetime) -> Iterator[dict[str, Any]]:
        """Give the rows of periods from `begin` to before `end` that are not both in the table and computed.

        `computed` says which of these a row is.
        """
        parameters = {"from": begin, "to": end, "version": 0}
        return self._database.asked(_differing(name, per), parameters)


def _differing(name: str, per: str) -> str:
    columns = ", ".join(column for column in _columns(f"{name}_{per}") if column != "version")
    computed = _computed(f"{name}_{per}")
    if per == "1h":
        # Of minutes that are as they must be, whatever the table of minutes says.
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
    """Return what computes all periods of a range, with the names and types that the table has."""
    select = _OF_SOME_PERIODS.sub("", _statement(table)["select"])
    return f"SELECT {', '.join(_columns(table))} FROM {{database}}.{table} WHERE 0 UNION ALL {select}"


def _columns(table: str) -> list[str]:
    return re.findall(r"\w+", _statement(table)["columns"])


def _statement(table: str) -> re.Match[str]:
    found = _STATEMENT.search(rollup(table))
    if found is None:
        raise ValueError(f"the statement of {table} is no INSERT with columns and a SELECT")
    return found
