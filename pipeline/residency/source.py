"""Residency of one source: applies its events in order and knows what is resident, lost and missing."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.residency import windows
from pipeline.residency.changes import Changes
from pipeline.residency.contact import Contact
from pipeline.residency.drift import Drift
from pipeline.residency.health import Health
from pipeline.residency.pools import Occupancy, Pools
from pipeline.residency.rows import SourceRows
from pipeline.residency.trust import Since, SourceTrust
from schemas.events import (
    Batch,
    Cleared,
    Closed,
    EngineCounters,
    Event,
    EventsRecord,
    Gap,
    Opened,
    SourceStatus,
    Undecodable,
)
from schemas.settings import Worker
from schemas.trust import Trust

NEVER = -1
"""Sequence number before the first batch."""


class LifeChanges(NamedTuple):
    """Changes of residency that belong to one incarnation."""

    incarnation: int
    model: str
    hash_domain: str
    trust: Trust
    changes: list[Changes]


class SourceResidency:
    """State of one (replica, dp_rank) across the lives of the engine behind it.

    A batch is applied once: (incarnation, seq) must grow. Notices of the connector carry no seq; each of
    them is harmless when it comes again.
    """

    def __init__(self, replica: str, dp_rank: int, settings: Worker) -> None:
        self.replica = replica
        self.dp_rank = dp_rank
        self.settings = settings
        self.model = self.hash_domain = self.tenant = self.engine = self.wire_era = ""
        self.incarnation = 0
        self.first_seq = self.last_seq = NEVER
        self.passed_over = 0
        """Batches after `last_seq` that came but could not be understood."""
        self.opened_at = 0.0
        self.closed_at: float | None = None
        self.closed_reason = ""
        self.trust = SourceTrust(Since("partial", 0.0))
        self.window: int | None = None
        self.version = 0
        self.health = Health()
        self.contact = Contact()
        self.drift = Drift()
        self.capacity_blocks = 0
        self.pools = Pools(settings)
        self.rows = SourceRows(self)
        self.rows_changed = False
        """Whether rows written before may differ now."""
        self.dirty = False
        """Whether anything differs from the last checkpoint."""
        self.life_changes: list[LifeChanges] = []

    def apply(self, record: EventsRecord, offset: int) -> None:
        """Apply one record of this source; repeated batches and past incarnations change nothing."""
        self.dirty = True
        if record.incarnation < self.incarnation:
            self._rows_change(offset)
            self.health.duplicate_batches += sum(batch.seq is not None for batch in record.batches)
            return
        begins = record.incarnation > self.incarnation
        # First, because the last rows of a life that ends here rest on this record, too.
        if begins or not self._changes_nothing(record):
            self._rows_change(offset)
        if begins:
            self._begin(record)
        self.engine = record.engine or self.engine
        self.wire_era = record.wire_era or self.wire_era
        self.health.duplicate_batches += record.duplicates
        self.pools.repeatable = (
            self.settings.reannounced == "auto"
            and self.engine == "vllm"
            and self.wire_era.startswith("map")
            and len(self.pools) <= 1
        )
        ahead, behind = self.settings.max_clock_ahead_seconds, self.settings.max_clock_behind_seconds
        contact = self.contact
        last_seq = self.last_seq
        for batch in record.batches:
            seq = batch.seq
            if seq is None:
                self.last_seq = last_seq
                for event in batch.events:
                    self._noticed(event, batch)
                last_seq = self.last_seq
                continue
            if seq <= last_seq:
                self.health.duplicate_batches += 1
                continue
            if seq != last_seq + 1:
                self._jumped(last_seq, seq, batch)
            at = windows.event_time(batch.ts, batch.received_at, ahead=ahead, behind=behind)
            window = windows.window_of(at)
            if window != self.window:
                self.last_seq = last_seq
                self._move_to(window)
            last_seq = seq
            if contact.last_batch_at is None:
                self.trust.first_batch(at)
            contact.last_batch_at = at
            if batch.replayed:
                self.health.replayed(batch.engine_events, was_due=contact.seen_live)
            else:
                contact.clock_offset = at - batch.received_at
                if not contact.seen_live or contact.disconnected_from is not None:
                    contact.live()
                self.health.live(batch.engine_events, batch.received_at - batch.ts)
            for event in self.pools.apply(batch.events, at):
                if isinstance(event, Cleared):
                    self.trust.cleared({"gpu"} if self.settings.clear_scope == "gpu" else None, at)
                else:
                    self._undecodable(event, at)
        self.last_seq = last_seq
        if self.first_seq == NEVER and record.first_seq is not None:
            # The log has lost the record that says how this life began.
            self.first_seq = record.first_seq

    def _jumped(self, last_seq: int, seq: int, batch: Batch) -> None:
        """Numbers between were neither applied nor announced as a gap: the log itself lacks them."""
        missing = seq - last_seq - 1 - self.passed_over
        self.passed_over = 0
        if missing > 0 and self.first_seq != NEVER:
            self.health.lost(missing)
            self.trust.degraded(self._known_until(batch))

    def _known_until(self, batch: Batch) -> float:
        """Return since when something is missing that should have come before `batch`."""
        last_batch_at = self.contact.last_batch_at
        return batch.ts if last_batch_at is None else last_batch_at

    def _rows_change(self, offset: int) -> None:
        self.rows_changed = True
        self.version = offset

    def _changes_nothing(self, record: EventsRecord) -> bool:
        """Return whether a record changes nothing that rows of windows show, but how far they are carried."""
        events = [event for batch in record.batches if batch.seq is None for event in batch.events]
        return (
            len(events) == len(record.batches)
            and not record.duplicates
            and all(
                (
                    isinstance(event, EngineCounters)
                    and event.capacity_blocks in (None, self.capacity_blocks)
                    and not self.drift.changes(event)
                )
                or (
                    isinstance(event, SourceStatus)
                    and not event.connected
                    and self.contact.disconnected_from is not None
                )
                for event in events
            )
        )

    def _undecodable(self, event: Undecodable, at: float) -> None:
        self.health.undecodable_events += event.count
        self.trust.degraded(at)

    def _noticed(self, event: Event, batch: Batch) -> None:
        at = batch.ts
        if isinstance(event, Opened):
            if self.first_seq == NEVER:
                self.first_seq = event.first_seq
                self.last_seq = event.first_seq - 1
                trust: Trust = "complete" if event.complete else "partial"
                self.trust = SourceTrust(Since(trust, at), self.trust.passed)
        elif isinstance(event, Gap):
            if event.last > self.last_seq:
                self.health.lost(event.last - max(event.first, self.last_seq + 1) + 1)
                self.last_seq, self.passed_over = event.last, 0
                self.trust.degraded(self._known_until(batch))
        elif isinstance(event, EngineCounters):
            if event.capacity_blocks is not None:
                self.capacity_blocks = event.capacity_blocks
            self.drift.counted(event)
            self.rows.counted(event, at)
        elif isinstance(event, SourceStatus):
            self._told(event, at)
        elif isinstance(event, Closed):
            self._closed(event, at)
        elif isinstance(event, Undecodable):
            if event.seq == self.last_seq + self.passed_over + 1:
                self.passed_over += 1
            self._undecodable(event, self._known_until(batch))

    def _told(self, status: SourceStatus, at: float) -> None:
        """Of an engine that is reached, nothing older will come: time goes on.

        Of one that is not, a replay may still bring what belongs into the windows since.
        """
        contact = self.contact
        window = windows.window_of(contact.event_time(at))
        if status.connected:
            if self.window is None or window > self.window:
                self._move_to(window)
            contact.reached()
        elif self.window is not None:
            contact.unreached(max(window, self.window))
        else:
            first = window if contact.reported_to is None else contact.reported_to + 1
            contact.unreached(window)
            self.rows.never_reached(first, window)

    def _closed(self, event: Closed, at: float) -> None:
        if self.closed_at is not None:
            return
        if event.reason in ("silent", "removed"):
            self._gone(windows.window_of(self.contact.event_time(at)))
        self.health.restarts += event.reason == "restarted"
        self.closed_at, self.closed_reason = at, event.reason
        self._lose_everything()

    def _gone(self, window: int) -> None:
        """The source leaves in this window: those before keep their figures."""
        if self.window is not None:
            window = max(window, self.window)
            self._move_to(window)
        self.contact.unreached(window)

    def _lose_everything(self) -> None:
        """The engine's life is over: its blocks are cleared in the last window it was seen in."""
        at = windows.window_end(self.window) - 1e-3 if self.window is not None else self.opened_at
        self.pools.clear(at)

    def _begin(self, record: EventsRecord) -> None:
        lived = self.incarnation != 0
        if lived:
            self.rows.life_ended()
            self._lose_everything()
            self._collect_changes()
        self.contact.life_began()
        self.drift.life_began()
        self.incarnation = record.incarnation
        self.model, self.hash_domain, self.tenant = record.model, record.hash_domain, record.tenant
        self.opened_at = record.batches[0].ts if record.batches else 0.0
        self.closed_at, self.closed_reason = None, ""
        self.first_seq = self.last_seq = NEVER
        self.passed_over = 0
        self.engine = self.wire_era = ""
        self.trust = SourceTrust(
            Since("partial", self.opened_at), self.trust.left_behind() if lived else None
        )

    def _move_to(self, window: int) -> None:
        if self.window is None:
            self.window = window
        elif window > self.window:
            self.pools.settle()
            self.rows.window_closed(window)
            self.pools.window_ended(windows.window_end(window - 1))
            self.health = Health()
            self.trust.passed = {}
            self.window = window

    def _collect_changes(self) -> None:
        changes = self.pools.take_changes()
        if changes:
            trust = self.overall_trust().trust
            self.life_changes.append(
                LifeChanges(self.incarnation, self.model, self.hash_domain, trust, changes)
            )

    def take_changes(self) -> list[LifeChanges]:
        """Return the changes of residency since the last call, oldest life first."""
        self._collect_changes()
        taken, self.life_changes = self.life_changes, []
        return taken

    @property
    def opened(self) -> bool:
        """Whether a first batch of the present life is known, by its number at least."""
        return self.first_seq != NEVER

    def overall_trust(self) -> Since:
        """Return the trust of the source as a whole: that of its worst medium."""
        return self.trust.worst(self.pools.media)

    def occupancy(self) -> list[Occupancy]:
        """Return what is resident at the end of the present window."""
        return self.pools.occupancy(windows.window_end(self.window or 0))
