"""Residency of one source: applies its events in order and knows what is resident, lost and missing."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.residency import windows
from pipeline.residency.changes import Changes
from pipeline.residency.contact import Contact
from pipeline.residency.drift import Drift
from pipeline.residency.flow import Flow
from pipeline.residency.granularity import GranularPool
from pipeline.residency.health import Health
from pipeline.residency.media import is_store_only
from pipeline.residency.pool import NO_PARENT, Pool
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
    Removed,
    SourceStatus,
    Stored,
    Undecodable,
)
from schemas.hashes import HASH_BYTES
from schemas.settings import Worker
from schemas.trust import Trust

SETTLE_AT_BYTES = 32_768 * HASH_BYTES
"""Hashes collected before they are applied: enough to make vectors pay, little enough to hold."""
NEVER = -1
"""Sequence number before the first batch."""


class Occupancy(NamedTuple):
    """What is resident at one granularity of one medium and group."""

    medium: str
    group_idx: int
    block_size: int
    entries: int
    blocks: int
    tokens: int
    covered_blocks: int
    store_only: bool


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
        self.pools: dict[tuple[str, int], Pool | GranularPool] = {}
        self.rows = SourceRows(self)
        self.rows_changed = False
        """Whether rows written before may differ now."""
        self.dirty = False
        """Whether anything differs from the last checkpoint."""
        self.life_changes: list[LifeChanges] = []
        self.needs_base = True
        """Whether the next checkpoint cannot be a delta."""
        self.granular: list[GranularPool] = []
        self._repeatable = False
        self._unsettled = 0
        """Bytes of hashes collected since the last `settle`."""
        self._flow_before: dict[tuple[str, int], Flow] = {}

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
        self._repeatable = (
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
            self._apply_events(batch.events, at)
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

    def _apply_events(self, events: list[Event], at: float) -> None:
        pools = self.pools
        pool: Pool | GranularPool | None = None
        place: tuple[str, int] | None = None
        collected = 0
        for event in events:
            # Types are compared because isinstance takes several times as long for msgspec's structs.
            if type(event) is Stored:
                packed = event.hashes
                if len(packed) % HASH_BYTES:
                    self._undecodable(Undecodable("bad_hash_length"), at)
                    continue
                collected += len(packed)
                # Most events are of the place that the one before was of.
                if place is None or event.group_idx != place[1] or event.medium != place[0]:
                    place = event.medium, event.group_idx
                    pool = pools.get(place)
                # What follows is `_stored` for the common case: nothing new about the pool.
                if type(pool) is Pool and pool.removes:
                    codes = pool.codes_of_several if len(packed) > HASH_BYTES else pool.codes_of_one
                    code = codes.get(event.block_size)
                    if code is not None and (event.parent is not None or not self._repeatable):
                        if event.lora is not None:
                            pool.adapters[len(pool.pending)] = pool.lora_code(event.lora)
                        pool.pending.append((packed, at, code, event.parent or NO_PARENT))
                        continue
                self._stored(event, at)
                place = None
            elif type(event) is Removed:
                packed = event.hashes
                if len(packed) % HASH_BYTES:
                    self._undecodable(Undecodable("bad_hash_length"), at)
                    continue
                collected += len(packed)
                if place is None or event.group_idx != place[1] or event.medium != place[0]:
                    place = event.medium, event.group_idx
                    pool = pools.get(place)
                if pool is None:
                    pool = self._pool(event.medium, event.group_idx)
                pool.remove(packed, at)
            elif type(event) is Cleared:
                self._cleared(at)
                place = None
            elif type(event) is Undecodable:
                self._undecodable(event, at)
        for granular in self.granular:
            granular.batch_ended(at)
        self._unsettled += collected
        if self._unsettled >= SETTLE_AT_BYTES:
            self.settle()

    def _stored(self, event: Stored, at: float) -> None:
        pool = self.pools.get((event.medium, event.group_idx))
        if pool is None:
            pool = self._pool(event.medium, event.group_idx)
            pool.store_only = is_store_only(event.medium, event.raw_medium)
        packed, block_size = event.hashes, event.block_size
        if isinstance(pool, GranularPool):
            parent = int.from_bytes(event.parent, "big") if event.parent is not None else None
            pool.store(packed, at, block_size, parent)
            return
        several = len(packed) > HASH_BYTES
        if block_size not in (pool.codes_of_several if several else pool.codes_of_one):
            pool.note(block_size, several=several)
            sizes = self._granularities(pool)
            if sizes is not None:
                self._split(pool, sizes)
                self._stored(event, at)
                return
        if not pool.removes:
            pool.note_chain(event.parent, packed)
        pool.store(
            packed,
            at,
            block_size,
            event.parent,
            event.lora,
            may_repeat=self._repeatable and event.parent is None,
        )

    @staticmethod
    def _granularities(pool: Pool) -> tuple[int, int] | None:
        """Return (coarse, fine) block sizes if the pool is announced at two overlapping granularities.

        Telling them from partial tail blocks (vLLM 0.24), which are removed one by one like any other:
        those come one hash an event, and their removals are announced.
        """
        pool.settle()
        sizes = sorted(size for size in pool.block_sizes if size > 0)
        for fine in sizes:
            code = pool.block_sizes.index(fine)
            if not pool.several_hashes[code] or pool.removed[code]:
                continue
            coarse = [size for size in sizes if size > fine and size % fine == 0]
            if coarse:
                return coarse[0], fine
        return None

    def _split(self, pool: Pool, sizes: tuple[int, int]) -> None:
        granular = GranularPool.adopted(pool, *sizes, age=self.settings.fine_block_age_seconds)
        self.pools[pool.medium, pool.group_idx] = granular
        self.granular.append(granular)
        self.needs_base = True

    def _pool(self, medium: str, group_idx: int) -> Pool:
        pool = self.pools[medium, group_idx] = Pool(medium, group_idx)
        self._repeatable = self._repeatable and len(self.pools) <= 1
        return pool

    def _cleared(self, at: float) -> None:
        gpu_only = self.settings.clear_scope == "gpu"
        for pool in self.pools.values():
            if not gpu_only or pool.medium == "gpu":
                pool.clear(at)
        self.trust.cleared({"gpu"} if gpu_only else None, at)
        self.needs_base = True

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
        for pool in self.pools.values():
            pool.clear(at)
        self.needs_base = True

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
            self.settle()
            self.rows.window_closed(window)
            for key, pool in self.pools.items():
                self._flow_before.setdefault(key, Flow()).add(pool.flow)
                pool.flow = Flow()
            self.health = Health()
            self.trust.passed = {}
            self.window = window
            for granular in self.granular:
                granular.expire(windows.window_end(window - 1))

    def settle(self) -> None:
        """Apply everything collected, so that occupancy, flow and changes are up to date."""
        self._unsettled = 0
        for pool in self.pools.values():
            pool.settle()

    def _collect_changes(self) -> None:
        self.settle()
        changes = [change for pool in self.pools.values() for change in pool.changes]
        for pool in self.pools.values():
            pool.changes = []
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
    def media(self) -> set[str]:
        """Names of the media on which something ever was."""
        return {medium for medium, _ in self.pools}

    @property
    def opened(self) -> bool:
        """Whether a first batch of the present life is known, by its number at least."""
        return self.first_seq != NEVER

    def overall_trust(self) -> Since:
        """Return the trust of the source as a whole: that of its worst medium."""
        return self.trust.worst(self.media)

    def occupancy(self, at: float | None = None) -> list[Occupancy]:
        """Return what is resident, per medium, group and block size, at the end of event time `at`.

        Every size ever seen is listed, also when nothing of it is resident any more.
        """
        self.settle()
        result = []
        for pool in self.pools.values():
            if isinstance(pool, GranularPool):
                end = at if at is not None else windows.window_end(self.window or 0)
                for size, entries, blocks, tokens, covered in pool.occupancy(end):
                    result.append(
                        Occupancy(pool.medium, pool.group_idx, size, entries, blocks, tokens, covered, False)
                    )
            else:
                store_only = pool.store_only and not pool.removes
                for size, entries, blocks in zip(pool.block_sizes, pool.entries, pool.blocks, strict=True):
                    result.append(
                        Occupancy(
                            pool.medium, pool.group_idx, size, entries, blocks, blocks * size, 0, store_only
                        )
                    )
        return result

    def flow_since_start(self) -> dict[tuple[str, int], Flow]:
        """Return what came and went per (medium, group_idx) since this object was made."""
        self.settle()
        totals = {}
        for key, pool in self.pools.items():
            total = totals[key] = Flow()
            total.add(pool.flow)
            if key in self._flow_before:
                total.add(self._flow_before[key])
        return totals
