"""What the tables say of every engine in the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Query = Callable[[str], list[tuple[Any, ...]]]


@dataclass
class Tables:
    """Figures by replica."""

    sources: dict[tuple[str, int], tuple[int, int, str, str]]
    """(replica, incarnation) to first_seq, last_seq, trust and closed_reason."""
    occupancy: dict[str, tuple[int, int]]
    """Entries and blocks at its last window."""
    health: dict[str, tuple[int, int]]
    """Batches and lost batches over all windows."""

    @classmethod
    def read(cls, query: Query) -> Tables:
        sources = query(
            "SELECT replica, incarnation, first_seq, last_seq, trust, closed_reason FROM sources FINAL"
        )
        occupancy = query(
            "SELECT replica, argMax(entries, window), argMax(blocks, window) FROM occupancy_10s FINAL "
            "GROUP BY replica"
        )
        health = query(
            "SELECT replica, sum(batches), sum(lost_batches) FROM stream_health_10s FINAL GROUP BY replica"
        )
        return cls(
            {row[:2]: row[2:] for row in sources},  # type: ignore[misc]
            {row[0]: row[1:] for row in occupancy},  # type: ignore[misc]
            {row[0]: row[1:] for row in health},  # type: ignore[misc]
        )
