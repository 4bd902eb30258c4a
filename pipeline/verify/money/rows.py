"""Reads the rows behind the figures of a range, and what the view says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, time, timedelta, timezone
from typing import Any

from pipeline.verify.money.recount import AT_RECEIVERS, LOST, SAVED, Cost, Hour, Inputs, Key, Row, Scraped
from pipeline.verify.store import StoredTables

LENGTH = timedelta(minutes=30)
"""Of a range that is compared."""
WINDOW = timedelta(seconds=10)
_SECONDS = "from = toUnixTimestamp({begin:DateTime('UTC')}), to = toUnixTimestamp({end:DateTime('UTC')})"
_RANGE = "window >= {begin:DateTime('UTC')} AND window <= {end:DateTime('UTC')}"


def half_hours(tables: StoredTables, after: datetime, most: int) -> list[datetime]:
    """Return the starts of the last half hours with fills, from `after` on and no more than `most`."""
    statement = (
        "SELECT DISTINCT toStartOfInterval(window, INTERVAL 30 MINUTE) AS start FROM {database}.fills_10s "
        "WHERE window >= {after:DateTime('UTC')} ORDER BY start DESC LIMIT {most:UInt32}"
    )
    return [row["start"] for row in tables.asked(statement, {"after": after, "most": most})]


def read_from(tables: StoredTables, begin: datetime) -> int:
    """Return the length in seconds of the windows that the view reads for the half hour."""
    statement = f"SELECT seconds FROM {{database}}.finest({_SECONDS})"
    return int(next(iter(tables.asked(statement, _bounds(begin))))["seconds"])


def costs_in_view(tables: StoredTables, begin: datetime) -> dict[Key, Cost]:
    """Return what the view says of the half hour, without rows of no tokens."""
    statement = (
        "SELECT tenant, model, replica, toString(kind) AS kind, cause, currency, tokens, gpu_seconds, cost, "
        "tokens_without_rate, unpriced_tokens, toString(rate_basis) AS rate_basis "
        f"FROM {{database}}.prefill_costs({_SECONDS})"
    )
    found: dict[Key, Cost] = {}
    for row in tables.asked(statement, _bounds(begin)):
        key = Key(*(row[name] for name in Key._fields))
        found[key] = Cost(**{name: value for name, value in row.items() if name not in Key._fields})
    return {key: cost for key, cost in found.items() if cost.tokens}


def inputs_of(tables: StoredTables, begin: datetime) -> Inputs:
    """Return the rows behind the figures of the half hour."""
    bounds = _bounds(begin)
    days = {
        "since": datetime.combine(begin.date(), time(), timezone.utc) - timedelta(hours=25),
        "until": datetime.combine(bounds["end"].date(), time(), timezone.utc) + timedelta(days=1),
    }
    asked = ("filled", *LOST, *AT_RECEIVERS.values(), *SAVED)
    columns = ", ".join(f"sum({column}_tokens) AS {column}_tokens" for column in asked)
    return Inputs(
        begin,
        bounds["end"],
        fills=list(
            tables.asked(
                f"SELECT window, hash_domain, model, replica, group_idx, {columns} "
                f"FROM {{database}}.fills_10s FINAL WHERE {_RANGE} "
                "GROUP BY window, hash_domain, model, replica, group_idx",
                bounds,
            )
        ),
        hits=list(_hits(tables, begin, bounds["end"])),
        hours=[_hour(row) for row in tables.asked(_HOURS, days)],
        sessions=list(
            tables.asked(
                "SELECT tenant, hash_domain, model, replica, dp_rank, opened_at "
                "FROM {database}.sources FINAL WHERE opened_at <= {end:DateTime('UTC')} "
                "AND (closed_at IS NULL OR closed_at >= {begin:DateTime('UTC')})",
                bounds,
            )
        ),
        settings=list(tables.asked("SELECT * FROM {database}.prefill_settings FINAL", {})),
    )


_HOURS = """
SELECT
    model, replica, dp_rank, toStartOfHour(toDateTime(time)) AS start,
    min(said) AS first, max(said) AS last
FROM
(
    SELECT
        model, replica, dp_rank, time,
        (time, ifNull(toInt64(prefill_tokens), toInt64(prefix_cache_queries) - toInt64(prefix_cache_hits)
            - ifNull(toInt64(external_hits), 0)), prefill_seconds) AS said
    FROM {database}.engine_counters FINAL
    WHERE time >= {since:DateTime('UTC')} AND time < {until:DateTime('UTC')} AND prefill_seconds IS NOT NULL
        AND (prefill_tokens IS NOT NULL OR prefix_cache_queries + prefix_cache_hits IS NOT NULL)
)
GROUP BY model, replica, dp_rank, start"""


def _hour(row: Row) -> Hour:
    scraped = [
        Scraped(said[0].replace(tzinfo=timezone.utc), int(said[1]), float(said[2]))
        for said in (row["first"], row["last"])
    ]
    return Hour(row["model"], row["replica"], row["dp_rank"], row["start"], *scraped)


def _hits(tables: StoredTables, begin: datetime, end: datetime) -> Iterator[tuple[str, str, datetime, int]]:
    """Yield the tokens found in the cache between each scrape of the range and the one before it."""
    statement = (
        "SELECT model, replica, dp_rank, time, prefix_cache_queries AS queries, prefix_cache_hits AS hits "
        "FROM {database}.engine_counters FINAL WHERE time >= {since:DateTime('UTC')} "
        "AND time < {until:DateTime('UTC')} AND isNotNull(queries) AND isNotNull(hits) ORDER BY time"
    )
    before: dict[tuple[str, str, int], tuple[int, int]] = {}
    bounds = {"since": begin - timedelta(minutes=1), "until": end + WINDOW}
    for row in tables.asked(statement, bounds):
        rank = (row["model"], row["replica"], row["dp_rank"])
        now = (row["queries"], row["hits"])
        old = before.get(rank, now)
        before[rank] = now
        fell = now[0] < old[0] or now[1] < old[1]
        if row["time"] >= begin:
            yield row["model"], row["replica"], row["time"], now[1] - (0 if fell else old[1])


def _bounds(begin: datetime) -> dict[str, Any]:
    return {"begin": begin, "end": begin + LENGTH - WINDOW}
