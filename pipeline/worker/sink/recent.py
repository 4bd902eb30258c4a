"""What a worker without ClickHouse says of the last minutes, from the rows that it made itself. No IO."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pipeline.fleet.causes import CAUSES, REANNOUNCED
from schemas.rows import FillsRow, OccupancyRow, Row, StreamHealthRow

RANGE = timedelta(seconds=300)
SETTLED = timedelta(seconds=30)
"""How much younger than the range the newest window is at least, as in `kvlens serve`."""
_KEPT = RANGE + SETTLED + timedelta(seconds=60)
_MINUTE = 60

_KEYS: dict[type[Any], tuple[str, ...]] = {
    OccupancyRow: ("model", "replica", "dp_rank", "medium", "group_idx", "block_size"),
    StreamHealthRow: ("model", "replica", "dp_rank"),
    FillsRow: ("hash_domain", "model", "replica", "dp_rank", "group_idx", "shard"),
}
"""Rows that are kept, and what names one besides its window."""


class Sums(NamedTuple):
    """Figures of one range, by model and label."""

    end: datetime
    """First moment behind the range."""
    newest: dict[str, datetime]
    """Start of the newest window by model."""
    streams: Counter[tuple[str, str]]
    """Event streams by model and the trust that they ended the range with."""
    filled: Counter[tuple[str, str]]
    """Tokens by model and cause, of the whole range."""
    cached: Counter[tuple[str, str]]
    """Tokens held at the end of the range, by model and medium."""
    gpu_blocks: Counter[str]
    """Physical GPU blocks held at the end of the range by replicas whose capacity is known, by model."""
    gpu_capacity: Counter[str]
    """GPU blocks that they have."""


class RecentRows:
    """Keeps rows of some minutes; of rows with one key the one with the highest version."""

    def __init__(self) -> None:
        self._windows: dict[datetime, dict[tuple[Any, ...], Any]] = {}

    def add(self, rows: Iterable[Row]) -> None:
        """Take the rows of a round; those of tables that no sum needs are let go."""
        for row in rows:
            if isinstance(row, OccupancyRow | StreamHealthRow | FillsRow):
                key = _key(row)
                held = self._windows.setdefault(row.window, {})
                before = held.get(key)
                if before is None or row.version >= before.version:
                    held[key] = row
        if self._windows:
            oldest = max(self._windows) - _KEPT
            for window in [window for window in self._windows if window < oldest]:
                del self._windows[window]

    def clear(self) -> None:
        """Forget everything: others may own the partitions now."""
        self._windows.clear()

    @property
    def newest(self) -> datetime | None:
        """Start of the newest window; None if there is none."""
        return max(self._windows, default=None)

    def between(self, begin: datetime, end: datetime) -> Iterator[Any]:
        """Give the rows of windows from `begin` to before `end`, the oldest window first."""
        for window in sorted(self._windows):
            if begin <= window < end:
                yield from self._windows[window].values()


def sums(agents: Iterable[RecentRows]) -> Sums | None:
    """Add up what the agents of a worker have; None where nothing is there yet."""
    kept = [*agents]
    newest = max((agent.newest for agent in kept if agent.newest is not None), default=None)
    if newest is None:
        return None
    settled = newest - SETTLED
    end = settled - timedelta(seconds=settled.timestamp() % _MINUTE)
    rows = [row for agent in kept for row in agent.between(end - RANGE, end)]
    latest: dict[tuple[Any, ...], Any] = {}
    fills: list[FillsRow] = []
    for row in rows:
        if isinstance(row, FillsRow):
            fills.append(row)
        else:
            latest[_key(row)] = row
    pools = [row for row in latest.values() if isinstance(row, OccupancyRow)]
    cached: Counter[tuple[str, str]] = Counter()
    for pool in pools:
        cached[pool.model, pool.medium] += pool.tokens
    held, capacity = _gpu(pools)
    return Sums(
        end=end,
        newest=_newest(row for agent in kept for row in agent.between(end - RANGE, newest + SETTLED)),
        streams=Counter(
            (row.model, row.trust) for row in latest.values() if isinstance(row, StreamHealthRow)
        ),
        filled=_filled(fills),
        cached=cached,
        gpu_blocks=held,
        gpu_capacity=capacity,
    )


def _key(row: Any) -> tuple[Any, ...]:
    return (type(row), *(getattr(row, name) for name in _KEYS[type(row)]))


def _newest(rows: Iterable[Any]) -> dict[str, datetime]:
    found: dict[str, datetime] = {}
    for row in rows:
        found[row.model] = max(row.window, found.get(row.model, row.window))
    return found


def _filled(rows: list[FillsRow]) -> Counter[tuple[str, str]]:
    """Add up by model and cause, of each replica and hash domain the group that filled most.

    The others hold the same tokens once more.
    """
    groups: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for row in rows:
        groups[row.hash_domain, row.replica][row.group_idx] += row.filled_tokens
    main = {of: min(counts, key=lambda group: (-counts[group], group)) for of, counts in groups.items()}
    filled: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row.group_idx == main[row.hash_domain, row.replica]:
            for cause in CAUSES[:REANNOUNCED]:
                filled[row.model, cause] += getattr(row, f"{cause}_tokens")
    return filled


def _gpu(pools: Iterable[OccupancyRow]) -> tuple[Counter[str], Counter[str]]:
    """Return blocks held and blocks that are there, by model; of each group only the largest blocks count.

    Smaller ones lie in those.
    """
    largest: dict[tuple[str, str, int], dict[int, OccupancyRow]] = {}
    for pool in pools:
        if pool.medium == "gpu":
            of_source = largest.setdefault((pool.model, pool.replica, pool.dp_rank), {})
            before = of_source.get(pool.group_idx)
            if before is None or pool.block_size > before.block_size:
                of_source[pool.group_idx] = pool
    held, there = Counter[str](), Counter[str]()
    for (model, _, _), groups in largest.items():
        capacity = max(pool.capacity_blocks for pool in groups.values())
        if capacity:
            held[model] += sum(pool.entries for pool in groups.values())
            there[model] += capacity
    return held, there
