"""Rows of one source: its windows as they fill, close, and are carried forward while it is idle."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pipeline.residency import histogram, windows
from schemas.events import EngineCounters
from schemas.rows import EngineCountersRow, FlowRow, OccupancyRow, Row, SourceRow, StreamHealthRow

if TYPE_CHECKING:
    from pipeline.residency.pools import Occupancy
    from pipeline.residency.source import SourceResidency

CARRY_LIMIT = 360
"""Windows carried forward per checkpoint and source; the rest follows at the next checkpoint."""


def timestamp(at: float) -> datetime:
    """Return seconds since the epoch as UTC, to the millisecond that tables keep."""
    return datetime.fromtimestamp(int(at * 1000) / 1000, timezone.utc)


class SourceRows:
    """Collects the rows of a source between checkpoints.

    A row's version is the offset of the last record of the source that it rests on, so writing the same
    log again, in other portions, ends in the same rows.
    """

    def __init__(self, source: SourceResidency) -> None:
        self._source = source
        self._waiting: list[Row] = []
        self.carried_to: int | None = None
        """Last window whose rows show the state as it is."""
        self.written_to: int | None = None
        """Last window for which rows were ever handed out; those behind `carried_to` show an older state."""

    def counted(self, event: EngineCounters, at: float) -> None:
        """Note a scrape of the engine's own counters."""
        source = self._source
        self._waiting.append(
            EngineCountersRow(
                time=timestamp(at),
                model=source.model,
                replica=source.replica,
                dp_rank=source.dp_rank,
                prefix_cache_queries=event.prefix_cache_queries,
                prefix_cache_hits=event.prefix_cache_hits,
                external_queries=event.external_queries,
                external_hits=event.external_hits,
                capacity_blocks=event.capacity_blocks,
                block_size=event.block_size,
                kv_cache_usage=event.kv_cache_usage,
                version=source.version,
            )
        )

    def window_closed(self, following: int) -> None:
        """Note the final rows of the open window and of the empty ones up to `following`, exclusive."""
        source = self._source
        if source.window is None:
            return
        occupancy = source.occupancy()
        self._waiting += self._window_rows(source.window, occupancy)
        source.drift.since = source.drift.since_window(source.window, source.drift.blocks(occupancy))
        first_empty = max(source.window + 1, following - CARRY_LIMIT)
        for window in range(first_empty, following):
            self._waiting += self._carried_rows(window)
        self._wrote(following - 1)

    def life_ended(self) -> None:
        """Note the last row of an incarnation that a new one replaces."""
        source = self._source
        if source.closed_at is None:
            heard = source.contact.last_batch_at
            source.closed_at = source.opened_at if heard is None else heard
            source.closed_reason = "superseded"
        self._waiting += self._source_rows()

    def never_reached(self, first: int, last: int) -> None:
        """Note windows, both ends included, of a source from which nothing ever came."""
        for window in range(max(first, last - CARRY_LIMIT), last + 1):
            self._waiting.append(self._health_row(window, [], idle=True))

    def take(self, now: float) -> list[Row]:
        """Return the rows to write at wall clock `now`: closed windows, the open one, and carried ones."""
        source = self._source
        rows, self._waiting = self._waiting, []
        if source.rows_changed:
            source.rows_changed = False
            if source.window is not None:
                rows += self._window_rows(source.window, source.occupancy())
                self._wrote(source.window)
            rows += self._source_rows()
        elif source.window is not None:
            rows += self._carry(source.window, now)
        return rows

    def _carry(self, window: int, now: float) -> list[Row]:
        source = self._source
        if source.closed_at is None:
            idle_windows = int(source.settings.idle_carry_seconds // windows.WINDOW_SECONDS)
            last = min(windows.window_of(now), window + idle_windows)
            if source.contact.reported_to is not None:
                last = max(last, source.contact.reported_to)
        else:
            # Nothing new is carried, but rows that were must not keep the state before the last events.
            last = self.written_to if self.written_to is not None else window
        first = max(window, self.carried_to if self.carried_to is not None else window) + 1
        rows: list[Row] = []
        for idle in range(first, min(last, first + CARRY_LIMIT - 1) + 1):
            rows += self._carried_rows(idle)
            self._wrote(idle)
        return rows

    def _wrote(self, window: int) -> None:
        self.carried_to = window
        self.written_to = window if self.written_to is None else max(window, self.written_to)

    def _window_rows(self, window: int, occupancy: list[Occupancy]) -> list[Row]:
        rows = [*self._occupancy_rows(window, occupancy), *self._flow_rows(window)]
        return [*rows, self._health_row(window, occupancy)]

    def _carried_rows(self, window: int) -> list[Row]:
        occupancy = self._source.pools.occupancy(windows.window_end(window))
        return [*self._occupancy_rows(window, occupancy), self._health_row(window, occupancy, idle=True)]

    def _occupancy_rows(self, window: int, occupancy: list[Occupancy]) -> list[Row]:
        source = self._source
        start = windows.window_start(window)
        rows: list[Row] = []
        for part in occupancy:
            trust, since = source.trust.of(part.medium)
            rows.append(
                OccupancyRow(
                    window=start,
                    model=source.model,
                    replica=source.replica,
                    dp_rank=source.dp_rank,
                    medium=part.medium,
                    group_idx=part.group_idx,
                    block_size=part.block_size,
                    entries=part.entries,
                    blocks=part.blocks,
                    tokens=part.tokens,
                    covered_blocks=part.covered_blocks,
                    capacity_blocks=source.capacity_blocks if part.medium == "gpu" else 0,
                    store_only=part.store_only,
                    trust=trust,
                    trust_since=timestamp(since),
                    version=source.version,
                )
            )
        return rows

    def _flow_rows(self, window: int) -> list[Row]:
        source = self._source
        start = windows.window_start(window)
        rows: list[Row] = []
        source.pools.settle()
        for pool in source.pools:
            flow = pool.flow
            if not any(flow.counts()):
                continue
            trust, since = source.trust.in_window(pool.medium)
            rows.append(
                FlowRow(
                    window=start,
                    model=source.model,
                    replica=source.replica,
                    dp_rank=source.dp_rank,
                    medium=pool.medium,
                    group_idx=pool.group_idx,
                    stored_blocks=flow.stored_blocks,
                    stored_tokens=flow.stored_tokens,
                    filled_blocks=flow.filled_blocks,
                    removed_blocks=flow.removed_blocks,
                    evicted_blocks=flow.evicted_blocks,
                    evicted_tokens=flow.evicted_tokens,
                    cleared_blocks=flow.cleared_blocks,
                    expired_blocks=flow.expired_blocks,
                    reannounced_blocks=flow.reannounced_blocks,
                    unknown_removed_blocks=flow.unknown_removed_blocks,
                    lifetime_hist=histogram.trimmed(flow.lifetimes),
                    trust=trust,
                    trust_since=timestamp(since),
                    version=source.version,
                )
            )
        return rows

    def _health_row(self, window: int, occupancy: list[Occupancy], *, idle: bool = False) -> Row:
        source = self._source
        health = type(source.health)() if idle else source.health
        heard = source.contact.last_batch_at
        drift_blocks = source.drift.blocks(occupancy)
        drift_since = source.drift.since_window(source.window or window, drift_blocks)
        trust, since = source.overall_trust() if idle else source.trust.worst_in_window(source.pools.media)
        return StreamHealthRow(
            window=windows.window_start(window),
            model=source.model,
            replica=source.replica,
            dp_rank=source.dp_rank,
            batches=health.batches,
            events=health.events,
            duplicate_batches=health.duplicate_batches,
            gap_batches=health.gap_batches,
            replayed_batches=health.replayed_batches,
            lost_batches=health.lost_batches,
            undecodable_events=health.undecodable_events,
            restarts=health.restarts,
            incarnation=source.incarnation,
            last_seq=source.last_seq,
            last_batch_at=timestamp(heard) if heard is not None else None,
            connected=source.contact.connected_in(window),
            lag_seconds=health.lag_seconds,
            drift_blocks=drift_blocks,
            drift_since=windows.window_start(drift_since) if drift_since is not None else None,
            trust=trust,
            trust_since=timestamp(since),
            version=source.version,
        )

    def _source_rows(self) -> list[Row]:
        """Return the row of the present life, if there is something to say of it."""
        source = self._source
        return [self._source_row()] if source.opened else []

    def _source_row(self) -> Row:
        source = self._source
        trust, since = source.overall_trust()
        return SourceRow(
            model=source.model,
            replica=source.replica,
            dp_rank=source.dp_rank,
            incarnation=source.incarnation,
            opened_at=timestamp(source.opened_at),
            closed_at=timestamp(source.closed_at) if source.closed_at is not None else None,
            closed_reason=source.closed_reason,
            engine=source.engine,
            wire_era=source.wire_era,
            hash_domain=source.hash_domain,
            tenant=source.tenant,
            first_seq=source.first_seq,
            last_seq=source.last_seq,
            trust=trust,
            trust_since=timestamp(since),
            version=source.version,
        )
