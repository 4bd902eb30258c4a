"""One source, record by record: what its rows must say after each record."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.verify import times
from pipeline.verify.replica.copies import Held
from pipeline.verify.replica.engine_capacity import gpu_room
from pipeline.verify.replica.health import Health
from pipeline.verify.replica.holdings import Holdings
from pipeline.verify.replica.life import Life
from pipeline.verify.replica.residency_sums import PoolOfSession, ResidencySums
from pipeline.verify.replica.trust import SourceTrust
from schemas.events import (
    OWNED,
    Accessed,
    Batch,
    Capacity,
    Cleared,
    Closed,
    EngineCounters,
    Event,
    EventsRecord,
    Gap,
    Opened,
    Removed,
    SourceStatus,
    Stored,
    Undecodable,
    is_cleared,
)
from schemas.hashes import HASH_BYTES
from schemas.settings import Worker

MOST_MISSING = 2**62
"""Batches of one window, at most, that count as missing."""
LAST_MOMENT = 1e-3
"""Seconds before the end of a window as of which changes that happen at its end count."""


class SourceRecount:
    """State of one source by the rules of docs/exactness.md, kept in dicts and lists."""

    def __init__(self, replica: str, dp_rank: int, worker: Worker) -> None:
        self.replica = replica
        self.dp_rank = dp_rank
        self.worker = worker
        self.life = Life()
        """The present session."""
        self.role = ""
        self.version = 0
        """Offset of the last record that changed a row."""
        self._holdings = Holdings(worker)
        self.pools = self._holdings.pools
        """What is held, by (medium, group)."""
        self.objects = self._holdings.objects
        self.trust = SourceTrust()
        self.capacity_blocks = 0
        """What the engine reported last, in whichever session."""
        self.cpu_capacity_tokens = 0
        """The same for the CPU tier."""
        # Of the open window
        self.window: int | None = None
        self.health = Health()
        # Across sessions and windows
        self.drift_since: int | None = None
        self.clock_offset = 0.0
        """Event time minus time of receipt of the last live batch."""
        self._past: dict[PoolOfSession, ResidencySums] = {}
        """Of sessions that are over."""
        self.disconnected_from: int | None = None
        """First window at whose end the source was not connected."""
        self.reported_to: int | None = None
        """Latest window of a report that the source is not connected. Reports count by the clock of their
        connector, so a later one may be of an earlier window, which has its rows already."""
        # Callbacks
        self.on_version_over: Callable[[], None] = lambda: None
        """Called before `version` changes: rows of the present one are final."""
        self.on_window_closed: Callable[[int], None] = lambda _window: None
        """Called with the open window when it is over."""
        self.on_windows_empty: Callable[[int, int], None] = lambda _first, _next: None
        """Called after that, with the first window after it and the next one in which something came."""
        self.on_life_over: Callable[[], None] = lambda: None
        """Called before another session begins."""
        self.on_model_over: Callable[[int], None] = lambda _first: None
        """Called with the first window in which the replica's model no longer counts, before another does."""
        self.on_never_reached: Callable[[int, int], None] = lambda _first, _last: None
        """Called with the first and last window in which a source was not reached that never had a batch."""
        self.on_counters: Callable[[EngineCounters, float], None] = lambda _counters, _at: None

    def apply(self, offset: int, record: EventsRecord) -> None:
        """Apply a record; the batches of a past session only count as duplicates."""
        if record.incarnation < self.life.incarnation:
            self._new_version(offset)
            self.health.duplicate_batches += sum(batch.seq is not None for batch in record.batches)
            return
        begins = record.incarnation > self.life.incarnation
        if begins or not self._says_nothing_new(record):
            self._new_version(offset)
        if begins:
            self._begin(record)
        self.life.heard(record)
        self.role = record.role
        self.health.duplicate_batches += record.duplicates
        for batch in record.batches:
            if batch.seq is None:
                for event in batch.events:
                    self._notice(event, batch)
            elif batch.seq <= self.life.last_seq:
                self.health.duplicate_batches += 1
            else:
                self._batch(batch, batch.seq)
        if self.life.first_seq is None and record.first_seq is not None:
            self.life.first_seq = record.first_seq

    def set_aside(self, offset: int) -> None:
        """Note that a record of the source cannot be applied: something is missing since the last batch."""
        self._new_version(offset)
        self._undecodable(1, self.life.known_until(self.life.opened_at))

    def _new_version(self, offset: int) -> None:
        self.on_version_over()
        self.version = offset

    def _says_nothing_new(self, record: EventsRecord) -> bool:
        """Return whether a record only has counters that are known and reports of a known disconnection."""
        if record.role != self.role or any(remark not in self.life.remarks for remark in record.remarks):
            return False
        if record.engine not in ("", self.life.engine) or record.wire_era not in ("", self.life.wire_era):
            return False
        if record.duplicates or any(batch.seq is not None for batch in record.batches):
            return False
        for event in (event for batch in record.batches for event in batch.events):
            if isinstance(event, EngineCounters):
                if self.life.capacity.anything_new(event):
                    return False
                if {event.capacity_blocks, self._gpu_room(event)} - {None, self.capacity_blocks}:
                    return False
                if event.cpu_capacity_tokens not in (None, self.cpu_capacity_tokens):
                    return False
            elif isinstance(event, SourceStatus):
                if event.connected or self.disconnected_from is None:
                    return False
            else:
                return False
        return True

    def _gpu_room(self, said: EngineCounters) -> int:
        return gpu_room(said, self._holdings.on_gpu(0.0)) or self.capacity_blocks

    def forgotten(self, offset: int) -> None:
        """End the session of a source that was silent for too long, unless its end was seen."""
        unseen = self.life.closed_at is None
        if unseen or self._holdings.outliving():
            self._new_version(offset)
            if unseen:
                self.life.ended_unseen("forgotten")
            self._lose(outliving=True)

    # Sessions

    def _begin(self, record: EventsRecord) -> None:
        """Begin another session: what was held is lost in the open window, the new one is unknown so far."""
        another = self.life.incarnation != 0
        another_model = another and record.model != self.life.model
        if another:
            if self.life.closed_at is None:
                self.life.ended_unseen("superseded")
            self.on_life_over()
            another_domain = another_model or record.hash_domain != self.life.hash_domain
            self._lose(outliving=another_domain or self._holdings.too_many_outlive())
            if another_model:
                if self.window is not None:
                    self._move_to(self.window + 1)
                    self.on_model_over(self.window)
                self.window, self.capacity_blocks, self.cpu_capacity_tokens = None, 0, 0
            self._past = self.residency_sums()
            self._holdings.life_began()
        self.life = Life(
            record.incarnation,
            self._time_of(record.batches[0]) if record.batches else 0.0,
            record.model,
            record.hash_domain,
            record.tenant,
        )
        goes_on = another and not another_model
        self.trust.life_began(self.life.opened_at, self._holdings.outliving() if goes_on else None)

    def _time_of(self, batch: Batch) -> float:
        """Return the event time of a batch, or when a notice was given."""
        return batch.ts if batch.seq is None else times.event_time(batch.ts, batch.received_at, self.worker)

    def _lose(self, *, outliving: bool, the_rest: bool = True) -> None:
        """Clear pools at the end of the open window; the arguments are those of `Holdings.lose`."""
        at = self.life.opened_at if self.window is None else times.end_of(self.window) - LAST_MOMENT
        self._holdings.lose(at, outliving=outliving, the_rest=the_rest)

    # Batches

    def _batch(self, batch: Batch, seq: int) -> None:
        at = times.event_time(batch.ts, batch.received_at, self.worker)
        missing = self.life.missing_before(seq)
        if missing and self.life.first_seq is not None:
            self._lost(missing)
            self.trust.degraded(self.life.known_until(at))
        self._move_to(times.window_of(at))
        self.life.advance(seq)
        if self.life.last_batch_at is None:
            self.trust.first_batch(at)
        self.life.last_batch_at = at
        self.health.batches += 1
        self.health.events += batch.engine_events
        if batch.replayed:
            self.health.replayed_batches += 1
            self.health.gap_batches += self.life.seen_live
        else:
            self.life.seen_live = True
            self.clock_offset = at - batch.received_at
            self.disconnected_from = self.reported_to = None
            self.health.lag_seconds = max(self.health.lag_seconds, batch.received_at - batch.ts)
        stores = self._holdings.batch_began(batch.events)
        for event in batch.events:
            if stores or not isinstance(event, Stored):
                self._event(event, at)
            else:
                self._undecodable(1, at)
        if self._holdings.batch_ended():
            self.trust.degraded(at)

    def _lost(self, batches: int) -> None:
        self.health.gap_batches = min(self.health.gap_batches + batches, MOST_MISSING)
        self.health.lost_batches = min(self.health.lost_batches + batches, MOST_MISSING)

    def _move_to(self, window: int) -> None:
        """Open the window; an older batch counts in the open one, as windows only go forward."""
        if self.window is not None and window > self.window:
            self.on_window_closed(self.window)
            too_many = self.drift_blocks(times.end_of(self.window))
            self.drift_since = self.drift_began(self.window, too_many)
            self.on_windows_empty(self.window + 1, window)
            self.health = Health()
            self.trust.window_began()
            self._holdings.window_began(window)
        if self.window is None or window > self.window:
            self.window = window

    def _event(self, event: Event, at: float) -> None:
        if isinstance(event, (Stored, Removed)) and self._holdings.left_out(event):
            self._undecodable(1, at)
        elif isinstance(event, Stored):
            self._holdings.stored(event, at, self.life, all_known=self._all_known(event.medium))
        elif isinstance(event, Removed):
            if self._holdings.removed(event, at, self.life, all_known=self._all_known(event.medium)):
                self._contradicted(event.medium)
        elif isinstance(event, Cleared):
            self._cleared(event, at)
        elif isinstance(event, Undecodable):
            named = event.medium
            if named is not None and not self._holdings.room_for_medium(named):
                named = None
            self._undecodable(event.count, at, named)
        elif isinstance(event, Accessed):
            if len(event.hashes) % HASH_BYTES:
                self._undecodable(1, at)
            else:
                self.objects.accessed(event, at)
        elif isinstance(event, Capacity):
            self.objects.declared(event.medium, event.capacity_bytes)

    def _cleared(self, event: Cleared, at: float) -> None:
        scope = event.medium
        if scope is None:
            scope = "" if self.life.clears_all or self.worker.clear_scope == "all" else "gpu"
        elif scope and not scope.endswith(OWNED) and not self._holdings.room_for_medium(scope):
            self._undecodable(1, at)
            return
        cleared = {medium for medium in self.media() if is_cleared(medium, scope)}
        if scope and not scope.endswith(OWNED):
            cleared.add(scope)
        self._holdings.cleared(cleared, event.group_idx, at)
        if event.group_idx is None and not {"no_identity", "no_sequence"} & {*self.life.remarks}:
            if scope:
                for medium in cleared:
                    self.trust.cleared(medium, at)
            else:
                self.trust.cleared(None, at, but=self.media() - cleared)

    def _contradicted(self, medium: str) -> None:
        """Note that a block left which was not there, if everything that was there is known."""
        known = self.trust.of(medium)
        if known.trust == "complete" and self.window is not None and not self.life.one_copy:
            self.trust.degraded(max(times.end_of(self.window - 1), known.at), medium)
            self.life.remarked("contradiction")

    def _all_known(self, medium: str) -> bool:
        return self.trust.of(medium).trust == "complete"

    def _undecodable(self, count: int, at: float, medium: str | None = None) -> None:
        self.health.undecodable_events += count
        self.trust.degraded(at, medium)

    # Notices

    def _notice(self, event: Event, batch: Batch) -> None:
        if isinstance(event, Opened):
            if self.life.first_seq is None:
                self.life.first_seq, self.life.last_seq = event.first_seq, event.first_seq - 1
                self.trust.opened(batch.ts, complete=event.complete)
        elif isinstance(event, Gap):
            # This includes gaps of doubt, which end with the last batch, and repeated ones.
            if event.last >= self.life.last_seq:
                first = max(event.first, self.life.last_seq + 1)
                self._lost(event.last - first + 1)
                self.trust.degraded(self.life.known_until(batch.ts))
                self.life.advance(event.last)
        elif isinstance(event, Undecodable):
            if event.seq == self.life.last_seq + len(self.life.not_understood) + 1:
                self.life.not_understood.add(event.seq)
            self._undecodable(event.count, self.life.known_until(batch.ts))
        elif isinstance(event, EngineCounters):
            self.capacity_blocks = self._gpu_room(event)
            self.life.capacity.heard(event)
            if event.cpu_capacity_tokens is not None:
                self.cpu_capacity_tokens = event.cpu_capacity_tokens
            self.on_counters(event, batch.ts)
        elif isinstance(event, SourceStatus):
            self._status(event, times.window_of(batch.ts + self.clock_offset))
        elif isinstance(event, Closed):
            self._closed(event, batch.ts)

    def _status(self, event: SourceStatus, window: int) -> None:
        if event.connected:
            self._move_to(window)
            self.disconnected_from = self.reported_to = None
        elif self.window is not None:
            self._unreached(max(window, self.window))
        else:
            first = window if self.reported_to is None else self.reported_to + 1
            self._unreached(window)
            self.on_never_reached(first, window)

    def _unreached(self, window: int) -> None:
        if self.disconnected_from is None:
            self.disconnected_from = window
        self.reported_to = max(window, -1 if self.reported_to is None else self.reported_to)

    def _closed(self, event: Closed, at: float) -> None:
        if self.life.closed_at is not None:
            if event.reason in ("silent", "removed"):
                self._lose(outliving=True, the_rest=False)
            return
        if event.reason in ("silent", "removed"):
            window = times.window_of(at + self.clock_offset)
            if self.window is not None:
                window = max(window, self.window)
                self._move_to(window)
            self._unreached(window)
        self.health.restarts += event.reason == "restarted"
        self.life.closed_at, self.life.closed_reason = at, event.reason
        self._lose(outliving=event.reason != "restarted")

    # What rows need

    def media(self) -> set[str]:
        """Return the media on which something ever was stored or removed."""
        return self._holdings.media()

    def held(self, at: float) -> list[tuple[str, int, Held]]:
        """Return (medium, group, held) for every pool and size, as of event time `at`."""
        return self._holdings.held(at)

    def residency_sums(self) -> dict[PoolOfSession, ResidencySums]:
        """Return what the residency topic must add up to for all sessions."""
        life = (self.replica, self.dp_rank, self.life.incarnation, self.life.hash_domain)
        present = {PoolOfSession(*life, *of): sums for of, sums in self._holdings.residency_sums().items()}
        return {**self._past, **present}

    def drift_blocks(self, at: float) -> int:
        """Return by how many blocks, at least, the count on the GPU exceeds what the engine has."""
        return self.life.capacity.too_many(self._holdings.on_gpu(at))

    def drift_began(self, window: int, too_many: int) -> int | None:
        """Return the first window of the unbroken row with drift that `window` ends; None without drift."""
        if not too_many:
            return None
        return window if self.drift_since is None else self.drift_since
