"""Rows of the fleet agent and figures of the oracle in one form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.pipeline.fleet.oracle import Oracle

CAUSES = (
    "promoted",
    "peer",
    "peer_and_evicted",
    "evicted",
    "evicted_elsewhere",
    "cleared",
    "cold",
    "unknown",
    "reannounced",
)
TRUSTS = ("complete", "partial", "degraded")


def newest(rows: Iterable[Any]) -> dict[str, dict[Any, Any]]:
    """Return {table: {key: row of the highest version}}; rows of equal version must be equal."""
    found: dict[str, dict[Any, Any]] = {"fills_10s": {}, "redundancy_10s": {}, "capacity_curve_10s": {}}
    for row in rows:
        window = int(row.window.timestamp()) // 10
        place = (row.medium,) if row.TABLE == "redundancy_10s" else (row.replica, row.dp_rank)
        key = (window, row.hash_domain, row.model, *place, row.group_idx)
        known = found[row.TABLE].get(key)
        if known is None or row.version >= known.version:
            found[row.TABLE][key] = row
    return found


def fills(rows: dict[Any, Any], scale: int = 1) -> dict[Any, Any]:
    """Return figures of `fills_10s` by key."""
    return {
        key: (
            {cause: getattr(row, f"{cause}_blocks") for cause in CAUSES if getattr(row, f"{cause}_blocks")},
            {cause: getattr(row, f"{cause}_tokens") for cause in CAUSES if getattr(row, f"{cause}_tokens")},
            {bucket: count for bucket, count in enumerate(row.regret_hist) if count},
            row.trust,
        )
        for key, row in rows.items()
    }


def oracle_fills(oracle: Oracle) -> dict[Any, Any]:
    """Return the same of the oracle."""
    return {
        key: (dict(each["blocks"]), dict(each["tokens"]), dict(each["regret"]), TRUSTS[each["trust"]])
        for key, each in oracle.fills.items()
    }


def needed(rows: dict[Any, Any]) -> dict[Any, list[int]]:
    """Return figures of `capacity_curve_10s` by key."""
    return {key: row.needed_hist for key, row in rows.items()}


def trimmed(counts: list[int]) -> list[int]:
    """Return the counts without trailing zeros."""
    while counts and not counts[-1]:
        counts = counts[:-1]
    return counts


OWNERS = ("owners_1", "owners_2", "owners_3", "owners_4_7", "owners_8_up", "unique_tokens", "physical_tokens")


def redundancy(rows: dict[Any, Any]) -> dict[Any, dict[int, dict[str, int]]]:
    """Return figures of `redundancy_10s` by place and window, zeros left out."""
    found: dict[Any, dict[int, dict[str, int]]] = {}
    for (window, domain, _, medium, group), row in rows.items():
        figures = {name: getattr(row, name) for name in OWNERS if getattr(row, name)}
        found.setdefault((domain, medium, group), {})[window] = figures
    return found


def filled_up(oracle: dict[Any, dict[int, dict[str, int]]]) -> dict[Any, dict[int, dict[str, int]]]:
    """Return the oracle's redundancy with every window, up to the last, in which nothing changed."""
    last = max((max(by_window) for by_window in oracle.values()), default=0)
    found: dict[Any, dict[int, dict[str, int]]] = {}
    for place, by_window in oracle.items():
        figures: dict[str, int] = {}
        found[place] = {}
        for window in range(min(by_window), last + 1):
            figures = by_window.get(window, figures)
            found[place][window] = figures
    return found
