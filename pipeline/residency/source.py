"""Residency of one source: applies its events in order and knows what is resident, lost and missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from pipeline.reading import windows
from pipeline.reading.plain_runs import PlainRun
from pipeline.residency.counting.copies import NewCopies
from pipeline.residency.limits import LeftOut
from pipeline.residency.occupancy import Occupancy
from pipeline.residency.pools import Pools
from pipeline.residency.rows import media
from pipeline.residency.session_changes import PendingChanges, SessionChanges, overall_trust
from pipeline.residency.source_windows import SourceWindows
from pipeline.residency.stream import capacity, connectivity, drift, health, receiving, session, trust
from pipeline.residency.stream.session import NEVER
from schemas.checkpoints import (
    SourceHead,
    TrustSince,
    TrustState,
)
from schemas.events import (
    MOST_REMARKS,
    OWNED,
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
    is_cleared,
    is_kept_once,
)
from schemas.reasons import LimitReason, Remark
from schemas.settings import Worker

NEVER_COMPLETE: frozenset[Remark] = frozenset({"no_identity", "no_sequence"})
"""Remarks of streams that no clear makes complete."""
MOST_KEPT = 0.5
"""Share of `worker.max_blocks` that may stay from one session to the next, on media that outlive them."""


def _is_any(medium: str) -> bool:
    return True


def _dies_with_engine(medium: str) -> bool:
    return not is_kept_once(medium)


class SourceResidency:
    """State of one (replica, dp_rank) across the sessions of its engine.

    A batch is applied once: (incarnation, seq) must grow. Notices of the connector carry no seq; repeating
    one is harmless. Rows come out of `windows`, changes of `take_changes`; a cut of the partition takes both.
    """

    def __init__(self, head: SourceHead, settings: Worker, new_copies: NewCopies) -> None:
        """`head` is new or from a checkpoint; `new_copies` makes what counts copies of a pool's blocks."""
        self.head = head
        self.settings = settings
        self.pools = Pools(settings, head, new_copies)
        self.windows = SourceWindows(head, self.pools, carry_seconds=settings.idle_carry_seconds)
        self.unsaved = False
        """Whether anything differs from the last cut."""
        self.left_out: Counter[LimitReason] = Counter()
        """Events that limits kept out since this was last read."""
        self._changes = PendingChanges(head, self.pools)

    def apply(self, record: EventsRecord, offset: int) -> None:
        """Apply one record of this source; repeated batches and past incarnations change nothing."""
        self.unsaved = True
        head = self.head
        if record.incarnation < head.incarnation:
            self.windows.change(offset)
            head.health.duplicate_batches += sum(batch.seq is not None for batch in record.batches)
            return
        begins = record.incarnation > head.incarnation
        # First, because the last rows of a session that ends here rest on this record, too.
        if begins or not session.changes_nothing(head, record, self._gpu_room):
            self.windows.change(offset)
        if begins:
            self._begin(record)
        self._described(record)
        ahead, behind = self.settings.max_clock_ahead_seconds, self.settings.max_clock_behind_seconds
        heard = head.connectivity
        last_seq = head.last_seq
        for batch in record.batches:
            seq = batch.seq
            if seq is None:
                head.last_seq = last_seq
                for event in batch.events:
                    self._noticed(event, batch)
                last_seq = head.last_seq
                continue
            if seq <= last_seq:
                head.health.duplicate_batches += 1
                continue
            at = windows.event_time(batch.ts, batch.received_at, ahead=ahead, behind=behind)
            if seq != last_seq + 1 or head.passed_over:
                self._jumped(last_seq, seq, at)
            window = windows.window_of(at)
            if window != head.window:
                head.last_seq = last_seq
                self.windows.move_to(window)
            last_seq = seq
            if heard.last_batch_at is None:
                trust.first_batch(head.trust, at)
            heard.last_batch_at = at
            if batch.replayed:
                health.replayed(head.health, batch.engine_events, was_due=heard.seen_live)
            else:
                heard.clock_offset = at - batch.received_at
                if not heard.seen_live or heard.disconnected_from is not None:
                    connectivity.live(heard)
                health.live(head.health, batch.engine_events, batch.received_at - batch.ts)
            self.pools.apply(batch.events, at, self._told)
        head.last_seq = last_seq
        if head.first_seq == NEVER and record.first_seq is not None:
            # The log has lost the record that says how this session began.
            head.first_seq = record.first_seq

    def apply_run(self, run: PlainRun) -> None:
        """Apply a run as `apply` would its records, all at once where it only continues what is known."""
        while not self._knows(run):
            # Often only the first record does more, because it begins a window.
            first = run.part(0, 1)
            if len(run.records) > 1 and self._knows(first):
                self._take(first)
            else:
                self.apply(first.decoded(), int(run.offsets[0]))
            if len(run.records) == 1:
                return
            run = run.part(1, len(run.records))
        self._take(run)

    def _knows(self, run: PlainRun) -> bool:
        """Return whether a run only continues the known session, sequence, connection, window and pools."""
        head = self.head
        heard = head.connectivity
        return (
            run.record.incarnation == head.incarnation
            and head.first_seq != NEVER
            and run.first_seq == head.last_seq + 1
            and not head.passed_over
            and heard.last_batch_at is not None
            and heard.seen_live
            and heard.disconnected_from is None
            and windows.window_of(run.first_time) == head.window
            and windows.window_of(run.last_time) == head.window
            and self.pools.knows(run)
        )

    def _take(self, run: PlainRun) -> None:
        head = self.head
        heard = head.connectivity
        self.unsaved = True
        self.windows.change(int(run.offsets[-1]))
        self._described(run.record)
        head.last_seq = run.last_seq
        heard.last_batch_at = run.time
        heard.clock_offset = run.time - run.received_at
        health.live(head.health, run.engine_events, run.lag, batches=run.batches)
        self.pools.apply_run(run)

    def _described(self, record: EventsRecord) -> None:
        """Take over what a record states about its source apart from batches."""
        head = self.head
        head.engine = record.engine or head.engine
        head.wire_era = record.wire_era or head.wire_era
        if record.role != head.role:
            self._changes.collect()
            head.role = record.role
            self._changes.decide()
        if record.may_reannounce is not None:
            head.may_reannounce = record.may_reannounce
        if record.clears_all is not None:
            head.clears_all = record.clears_all
        head.one_copy = record.one_copy
        self.pools.follow_engine()
        if not {*record.remarks} <= {*head.remarks}:
            self.pools.settle()  # which may add a remark of its own
            head.remarks = [*dict.fromkeys([*head.remarks, *record.remarks])][:MOST_REMARKS]
        head.health.duplicate_batches += record.duplicates
        self.pools.repeatable = (
            self.settings.reannounced == "auto"
            and head.may_reannounce is True
            and len(self.pools) <= 1
            and "contradiction" not in head.remarks
            and not head.copies_proved
        )

    def record_set_aside(self, offset: int) -> None:
        """Note that the record at `offset` was set aside: what it said of this source is not known."""
        self.unsaved = True
        self.windows.change(offset)
        self._undecodable(1, self._known_until(self.head.opened_at))

    def records_removed(self, offset: int) -> None:
        """Note that the log lost records up to `offset` before they were applied, perhaps of this source."""
        self.unsaved = True
        self.windows.change(offset)
        trust.degraded(self.head.trust, self._known_until(self.head.opened_at))

    def forgotten(self, offset: int) -> None:
        """Drop all that the source holds, at the record at `offset`; a session still open ends unseen."""
        goes_on = self.head.closed_at is None
        if goes_on or self.pools.kept():
            self.windows.change(offset)
            if goes_on:
                self.windows.ended_unseen("forgotten")
            self._lose()
        self._changes.decide()

    def _jumped(self, last_seq: int, seq: int, at: float) -> None:
        """Count numbers in between, neither applied nor announced as a gap, as lost: the log lacks them."""
        head = self.head
        missing = seq - last_seq - 1 - head.passed_over
        head.passed_over = max(0, last_seq + head.passed_over - seq)
        if missing > 0 and head.first_seq != NEVER:
            health.lost(head.health, missing)
            self._degrade(self._known_until(at))

    def _known_until(self, at: float) -> float:
        """Return since when something is missing that should have come before event time `at`."""
        last_batch_at = self.head.connectivity.last_batch_at
        return at if last_batch_at is None else last_batch_at

    def _undecodable(self, count: int, at: float, medium: str | None = None) -> None:
        """Count events not understood, which may have changed what is on `medium` (None: on any)."""
        self.head.health.undecodable_events += count
        self._degrade(at, medium)

    def _degrade(self, at: float, medium: str | None = None) -> None:
        """Note that something is missing since `at`; what was degraded before stays so since then."""
        if trust.anything_complete(self.head.trust):
            self.pools.settle()
        trust.degraded(self.head.trust, at, medium)

    def _told(self, found: Cleared | Undecodable | LeftOut, at: float) -> None:
        if isinstance(found, Cleared):
            self._cleared(found, at)
        elif isinstance(found, Undecodable):
            self._undecodable(found.count, at, found.medium)
        else:
            self._limited(found, at)

    def _cleared(self, event: Cleared, at: float) -> None:
        """Note what is known to be empty now, unless the stream can never be complete."""
        if event.group_idx is None and NEVER_COMPLETE.isdisjoint(self.head.remarks):
            scope, known = self.pools.cleared_medium(event), media(self.head)
            empty = {medium for medium in known if is_cleared(medium, scope)}
            if scope and not scope.endswith(OWNED):
                empty.add(scope)
            trust.cleared(self.head.trust, empty, at, others=None if scope else known - empty)

    def _limited(self, left_out: LeftOut, at: float) -> None:
        self.head.limited = True
        self.left_out[left_out.reason] += left_out.events
        self._undecodable(left_out.events, at)

    def _noticed(self, event: Event, batch: Batch) -> None:
        head, at = self.head, batch.ts
        if isinstance(event, Opened):
            if head.first_seq == NEVER:
                head.first_seq = event.first_seq
                head.last_seq = event.first_seq - 1
                head.trust = trust.opened(head.trust, at, complete=event.complete)
        elif isinstance(event, Gap):
            if event.last > head.last_seq:
                health.lost(head.health, event.last - max(event.first, head.last_seq + 1) + 1)
                left = max(0, head.last_seq + head.passed_over - event.last)
                head.last_seq, head.passed_over = event.last, left
            if event.last == head.last_seq:
                # Also where the gap only reports that nothing confirms the last batch.
                self._degrade(self._known_until(at))
        elif isinstance(event, EngineCounters):
            head.capacity_blocks = self._gpu_room(event)
            if event.cpu_capacity_tokens is not None:
                head.cpu_capacity_tokens = event.cpu_capacity_tokens
            if receiving.may_decide(head, event):
                self._changes.collect()
                receiving.take_over(head, event)
                self._changes.decide()
            drift.take_over(head.drift, event)
            self.windows.scraped(event, at)
        elif isinstance(event, SourceStatus):
            self._reported(event, at)
        elif isinstance(event, Closed):
            self._closed(event, at)
        elif isinstance(event, Undecodable):
            if event.seq == head.last_seq + head.passed_over + 1:
                head.passed_over += 1
            self._undecodable(event.count, self._known_until(at))

    def _gpu_room(self, counters: EngineCounters) -> int:
        """Return the capacity of the GPU in its largest blocks after these counters; 0 if none is known."""
        if counters.capacity_blocks is None:
            return self.head.capacity_blocks
        on_gpu = [part for part in self.occupancy() if part.medium == "gpu"]
        return capacity.in_largest_blocks(counters, on_gpu) or self.head.capacity_blocks

    def _reported(self, status: SourceStatus, at: float) -> None:
        """Move on in time while the engine is reached: nothing older will come.

        While it is not, a replay may still bring batches of the windows since.
        """
        head, heard = self.head, self.head.connectivity
        window = windows.window_of(connectivity.event_time(heard, at))
        if status.connected:
            self.windows.move_to(window)
            connectivity.reached(heard)
        elif head.window is not None:
            connectivity.unreached(heard, max(window, head.window))
        else:
            first = window if heard.reported_to is None else heard.reported_to + 1
            connectivity.unreached(heard, window)
            self.windows.never_reached(first, window)

    def _closed(self, event: Closed, at: float) -> None:
        head = self.head
        restarted, gone = event.reason == "restarted", event.reason in ("silent", "removed")
        if head.closed_at is not None:
            if gone:
                self._lose(is_kept_once)
            return
        if gone:
            self._gone(windows.window_of(connectivity.event_time(head.connectivity, at)))
        head.health.restarts += restarted
        head.closed_at, head.closed_reason = at, event.reason
        self._lose(_dies_with_engine if restarted else _is_any)
        self._changes.decide()

    def _gone(self, window: int) -> None:
        """Let the source leave in this window; those before keep their figures."""
        if self.head.window is not None:
            window = max(window, self.head.window)
            self.windows.move_to(window)
        connectivity.unreached(self.head.connectivity, window)

    def _lose(self, is_lost: Callable[[str], bool] = _is_any) -> None:
        """Clear blocks, in the last window the engine was seen in, on media for which `is_lost` is true."""
        head = self.head
        at = windows.window_end(head.window) - 1e-3 if head.window is not None else head.opened_at
        self.pools.clear(at, is_lost)

    def _begin(self, record: EventsRecord) -> None:
        head = self.head
        lived, same_model = head.incarnation != 0, record.model == head.model
        if lived:
            self.windows.end_session()
            # No hash of this model finds another model's files, and some day there would be too many.
            most = int(self.settings.max_blocks * MOST_KEPT)
            same_hashes = same_model and record.hash_domain == head.hash_domain
            stays = self.pools.kept().total() <= most and same_hashes
            self._lose(_dies_with_engine if stays else _is_any)
            self._changes.decide()
            if not same_model:
                self.windows.end_model()
        session.began(head, record, self._event_time(record.batches[0]) if record.batches else 0.0)
        self.pools.session_began(head.loras)
        if lived and same_model:
            head.trust = trust.session_began(head.trust, head.opened_at, {*self.pools.kept()})
        else:
            head.trust = TrustState(TrustSince("partial", head.opened_at), {}, head.trust.passed)

    def _event_time(self, batch: Batch) -> float:
        """Return when a batch was published or a notice given; only the clock of an engine may be off."""
        if batch.seq is None:
            return batch.ts
        ahead, behind = self.settings.max_clock_ahead_seconds, self.settings.max_clock_behind_seconds
        return windows.event_time(batch.ts, batch.received_at, ahead=ahead, behind=behind)

    @property
    def opened(self) -> bool:
        """Whether the first batch of the present session is known, at least its number."""
        return self.head.first_seq != NEVER

    def overall_trust(self) -> TrustSince:
        """Return the trust of the source as a whole: that of its worst medium."""
        return overall_trust(self.head, self.pools)

    def take_changes(self) -> list[SessionChanges]:
        """Return the changes of residency since the last call, oldest session first."""
        return self._changes.take()

    def occupancy(self) -> list[Occupancy]:
        """Return what is resident at the end of the present window."""
        return self.pools.occupancy(windows.window_end(self.head.window or 0))

    @property
    def drifts(self) -> bool:
        """Whether more is resident than the engine has room for, as in the row of the open window."""
        return drift.known(self.head.drift) and drift.blocks(self.head.drift, self.occupancy()) > 0
