"""What a worker without ClickHouse reports of the last minutes, from the rows that it made itself. No IO.

These are the figures of the views `held_series` (at the end of the range) and `fills_series`; a test computes
both from the same rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pipeline.fleet.causes import FILL_CAUSES
from schemas.fleet_metrics import MEDIA
from schemas.fleet_rows import FillsRow
from schemas.rows import OccupancyRow, Row, StreamHealthRow

RANGE = timedelta(seconds=300)
SETTLED = timedelta(seconds=30)
"""How much later than the end of the range the newest window is at least, as in `kvlens serve`."""
_KEPT = RANGE + SETTLED + timedelta(seconds=60)
_MINUTE = 60

_KEYS: dict[type[Any], tuple[str, ...]] = {
    OccupancyRow: ("model", "replica", "dp_rank", "medium", "group_idx", "block_size"),
    StreamHealthRow: ("model", "replica", "dp_rank"),
    FillsRow: ("hash_domain", "model", "replica", "dp_rank", "group_idx", "shard"),
}
"""The rows that are kept, and the fields that name one within its window."""


class Sums(NamedTuple):
    """Figures of one range, by model and label."""

    end: datetime
    """First moment after the range."""
    newest: dict[str, datetime]
    """Start of the newest window by model."""
    streams: Counter[tuple[str, str]]
    """Event streams by model and by their trust at the end of the range."""
    filled: Counter[tuple[str, str]]
    """Tokens by model and cause of the whole range; `at_receivers`: only sources that receive KV had them."""
    cached: Counter[tuple[str, str]]
    """Tokens held at the end of the range, by model and medium; left out where their number is not known."""
    gpu_blocks: Counter[str]
    """Physical GPU blocks held at the end of the range by replicas whose capacity is known, by model."""
    gpu_capacity: Counter[str]
    """GPU blocks that they have."""


class RecentRows:
    """Keeps the rows of the last minutes; of rows with one key, the one with the highest version."""

    def __init__(self) -> None:
        self._windows: dict[datetime, dict[tuple[Any, ...], Any]] = {}

    def add(self, rows: Iterable[Row]) -> None:
        """Add the rows of a round; rows of tables that no sum needs are ignored."""
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
        """Yield the rows of windows from `begin` to before `end`, the oldest window first."""
        for window in sorted(self._windows):
            if begin <= window < end:
                yield from self._windows[window].values()


def sums(agents: Iterable[RecentRows]) -> Sums | None:
    """Add up what the agents of a worker have; None if there is nothing yet."""
    kept = [*agents]
    newest = max((agent.newest for agent in kept if agent.newest is not None), default=None)
    if newest is None:
        return None
    settled = newest - SETTLED
    end = settled - timedelta(seconds=settled.timestamp() % _MINUTE)
    rows = [row for agent in kept for row in agent.between(end - RANGE, end)]
    fills = [row for row in rows if isinstance(row, FillsRow)]
    streams = {_key(row): row.trust for row in rows if isinstance(row, StreamHealthRow)}
    cached, held, capacity = Counter[tuple[str, str]](), Counter[str](), Counter[str]()
    latest = _at_the_end(rows)
    for (model, replica, rank, medium), pools in latest.items():
        of_rank = _held(pools, latest.get((model, replica, rank, "gpu"), ()))
        if of_rank.tokens is not None:
            cached[model, medium if medium in MEDIA else "other"] += of_rank.tokens
        if medium == "gpu" and of_rank.capacity_blocks:
            held[model] += of_rank.entries
            capacity[model] += of_rank.capacity_blocks
    return Sums(
        end=end,
        newest=_newest(row for agent in kept for row in agent.between(end - RANGE, newest + SETTLED)),
        streams=Counter((str(model), trust) for (_, model, *_), trust in streams.items()),
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
    """Add up by model and cause, in each replica and hash domain the KV-cache group that filled most.

    Other groups hold the same tokens once more.
    """
    groups: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for row in rows:
        groups[row.hash_domain, row.replica][row.group_idx] += row.filled_tokens
    main = {of: min(counts, key=lambda group: (-counts[group], group)) for of, counts in groups.items()}
    filled: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row.group_idx == main[row.hash_domain, row.replica]:
            for cause in FILL_CAUSES:
                filled[row.model, cause] += getattr(row, f"{cause}_tokens")
            filled[row.model, "peer"] -= row.peer_at_receivers_tokens
            filled[row.model, "evicted_elsewhere"] -= row.evicted_at_receivers_tokens
            at_receivers = row.peer_at_receivers_tokens + row.evicted_at_receivers_tokens
            filled[row.model, "at_receivers"] += at_receivers
    return filled


_OfRank = tuple[str, str, int, str]
"""Model, replica, rank, medium."""


def _at_the_end(rows: Iterable[Any]) -> dict[_OfRank, list[OccupancyRow]]:
    """Return the rows of the last window of each rank and medium; `rows` are in order of their windows."""
    found: dict[_OfRank, list[OccupancyRow]] = {}
    for row in rows:
        if isinstance(row, OccupancyRow):
            of = row.model, row.replica, row.dp_rank, row.medium
            before = found.get(of)
            if before is None or before[0].window < row.window:
                found[of] = [row]
            else:
                before.append(row)
    return found


class _Held(NamedTuple):
    """What a rank holds on a medium, as a row of `held_series`."""

    entries: int
    capacity_blocks: int
    tokens: int | None
    """None: it is not known how many a block has."""


def _held(pools: Iterable[OccupancyRow], on_gpu: Iterable[OccupancyRow]) -> _Held:
    """Add up a window's rows. Of each KV-cache group only the entries of the largest blocks count, as smaller
    ones lie in those. Tokens are those of the group with most, as the others hold the same, up to what there
    is room for. A block of unknown size counts as many tokens as its group's blocks on the GPU have.
    """
    largest: dict[int, OccupancyRow] = {}
    tokens: Counter[int] = Counter()
    untold = False
    size_on_gpu: dict[int, int] = {}
    for pool in on_gpu:
        size_on_gpu[pool.group_idx] = max(pool.block_size, size_on_gpu.get(pool.group_idx, 0))
    for pool in pools:
        tokens[pool.group_idx] += pool.tokens
        if pool.block_size == pool.tokens == 0 < pool.blocks:
            tokens[pool.group_idx] += pool.blocks * size_on_gpu.get(pool.group_idx, 0)
            untold |= not size_on_gpu.get(pool.group_idx)
        before = largest.setdefault(pool.group_idx, pool)
        if pool.block_size > before.block_size:
            largest[pool.group_idx] = pool
    most = max(tokens.values())
    room = max(pool.capacity_blocks * pool.block_size for pool in largest.values())
    return _Held(
        entries=sum(pool.entries for pool in largest.values()),
        capacity_blocks=max(pool.capacity_blocks for pool in largest.values()),
        tokens=None if untold else min(most, room) if room else most,
    )
