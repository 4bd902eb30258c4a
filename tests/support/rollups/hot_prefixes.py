"""Minutes and hours of hot prefixes: one row for each space lists the first ones, shards added up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from pipeline.verify.times import start_of_period
from schemas.trust import worst

LISTED = 100
"""Prefixes of a period by duplicated, and as many by refilled tokens."""
PREFIX_SPACE = ("hash_domain", "model", "group_idx")

_WINDOW, _MINUTE, _HOUR = timedelta(seconds=10), timedelta(minutes=1), timedelta(hours=1)
_NAME = ("prefix", "lora")
_LARGEST = ("depth_blocks", "owners", "sampled_one_in")
_AT_ONCE = ("shared_tokens", "duplicated_tokens")
"""Add up over shards; of several windows the largest counts."""
_SUMMED = ("refilled_tokens", "refilled_tokens_missing")

_Prefixes = Iterable[dict[str, Any]]


def listed_prefixes(rows: list[dict[str, Any]], length: timedelta) -> dict[str, Any]:
    """Return the columns of a minute or an hour, given all ten-second rows of one space in it.

    Hours are made from minutes, so a prefix counts in them with the minutes that list it.
    """
    found = list(_added_up(rows, _WINDOW, largest=_LARGEST, summed=(*_AT_ONCE, *_SUMMED)))
    for period in (_MINUTE, _HOUR):
        if period <= length:
            of_period = _added_up(found, period, largest=(*_LARGEST, *_AT_ONCE), summed=_SUMMED)
            found = list(_first_ones(of_period))
    found.sort(key=_name)
    columns = (*_NAME, *_LARGEST, *_AT_ONCE, *_SUMMED, "trust")
    return {**{column: [one[column] for one in found] for column in columns}, "windows": len(rows)}


def _added_up(
    rows: _Prefixes, period: timedelta, *, largest: tuple[str, ...], summed: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    """Give one row for each period and prefix."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = (start_of_period(row["window"], period), *_name(row))
        groups.setdefault(key, []).append(row)
    for key, of_prefix in groups.items():
        yield {
            **dict(zip(("window", *_NAME), key, strict=True)),
            **{column: max(row[column] for row in of_prefix) for column in largest},
            **{column: sum(row[column] for row in of_prefix) for column in summed},
            "trust": worst(*(row["trust"] for row in of_prefix)),
        }


def _first_ones(rows: _Prefixes) -> Iterator[dict[str, Any]]:
    """Give what is listed of each period."""
    periods: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        periods.setdefault(row["window"], []).append(row)
    for of_period in periods.values():
        chosen: dict[tuple[Any, ...], dict[str, Any]] = {}
        for figure in ("duplicated_tokens", "refilled_tokens"):
            ranked = sorted(of_period, key=lambda row, by=figure: (-row[by], *_name(row)))  # type: ignore[misc]
            chosen |= {_name(row): row for row in ranked[:LISTED] if row[figure]}
        yield from chosen.values()


def _name(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[column] for column in _NAME)
