"""Reads the answer and the findings of a range from the view `briefing`; `sentences` has their texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from clickhouse_connect.driver.client import Client

from pipeline.clickhouse.grains import TEN_SECONDS

_LATE_SECONDS = 3
"""Usually, the rows of a window are there at most this long after its end."""

_CLOCK = re.compile(r"'(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)'")
_BRIEFING = """
SELECT *
FROM {database}.briefing(from = {{from:UInt32}}, to = {{to:UInt32}}, models = {{model:Array(String)}})
WHERE place <= 7
ORDER BY part, place
"""


class Answer(msgspec.Struct, frozen=True):
    """A line of the answer: what was avoidable, the hit rate, the biggest lever, the data."""

    place: int
    title: str
    figure: str
    detail: str
    change: str
    """Against the range of equal length before."""
    value: float | None
    """The share behind the figure, 0 to 1."""
    before: float | None
    """The same in the range before."""


class AdviceFinding(msgspec.Struct, frozen=True):
    """One thing to do, and what it is worth; figures are tokens an hour unless they say otherwise."""

    place: int
    kind: str
    model: str
    hash_domain: str
    replicas: list[str]
    subject: str
    """What distinguishes findings of a kind in a hash domain: a replica, or the hash of a first block."""
    finding: str
    action: str
    figure: str
    caveat: str
    """Why the figure may be wrong; empty where it rests on complete data."""
    tokens_per_hour: float
    at_least_per_hour: float
    at_most_per_hour: float
    gpu_seconds_per_hour: float | None
    rate_basis: str
    ranked_by: str
    board: str
    """The board that shows it."""
    evidence: str
    """The query that has the figures behind it."""


class Advice(msgspec.Struct, frozen=True):
    """Answer and findings of a range, in seconds since the epoch, both ends included."""

    start: int
    end: int
    answer: list[Answer]
    findings: list[AdviceFinding]


def latest_range(now: float, seconds: int) -> tuple[int, int]:
    """Return a range of `seconds` that ends with the newest window whose rows should be there."""
    end = int((now - _LATE_SECONDS) // TEN_SECONDS.length * TEN_SECONDS.length)
    return end - seconds, end - 1


def read_advice(client: Client, database: str, start: int, end: int, models: Sequence[str] = ()) -> Advice:
    """Return the answer and the findings; no `models` means all."""
    parameters: dict[str, Any] = {"from": start, "to": end, "model": list(models)}
    rows = list(client.query(_BRIEFING.format(database=database), parameters=parameters).named_results())
    return Advice(
        start,
        end,
        [msgspec.convert(row, Answer) for row in rows if row["part"] == "answer"],
        [
            msgspec.convert(
                {
                    **row,
                    "finding": row["title"],
                    "action": row["detail"],
                    "evidence": _in_utc(row["evidence"]),
                },
                AdviceFinding,
            )
            for row in rows
            if row["part"] == "finding"
        ],
    )


def _in_utc(statement: str) -> str:
    """Return the statement with its times marked as UTC, for a session of any zone."""
    return _CLOCK.sub(r"'\1Z'", statement)
