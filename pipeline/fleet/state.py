"""State of one shard: applies residency records in the order of the log, and makes rows and checkpoints."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from pipeline.applying.state import State
from pipeline.applying.steps import Steps, at_once
from pipeline.errors import damaged_if_it_fails
from pipeline.fleet.acceptance import is_acceptable
from pipeline.fleet.event_time import Progress
from pipeline.fleet.hashing.comparison import HashComparison
from pipeline.fleet.hashing.groups import HashGroups
from pipeline.fleet.index import CHUNK, Index
from pipeline.fleet.kernel.columns import Changes, Pieces
from pipeline.fleet.kernel.counts import CLOCK_MOVED, DONE, ENDED_FULL, REFILLS_FULL, WINDOW
from pipeline.fleet.kernel.follow import GPU, follow
from pipeline.fleet.kernel.refills import make_room, no_refills
from pipeline.fleet.open_windows import OpenWindows
from pipeline.fleet.packing import Table
from pipeline.fleet.pieces import PieceSplitter, latest_time
from pipeline.fleet.pool_names import PoolNames
from pipeline.fleet.prefixes.hot import hot_prefixes
from pipeline.fleet.registry import names_in
from pipeline.fleet.snapshot import Bases
from pipeline.fleet.soundness import sound_base
from pipeline.fleet.transfers import Transfers
from pipeline.fleet.undecided import Undecided
from pipeline.fleet.waiting import Due, WaitingChanges
from pipeline.kafka.acceptance import residency_refusal
from pipeline.kafka.refusal import RecordRefused
from pipeline.reading import windows
from schemas.fleet_checkpoints import FORMAT, HEAD_KEY, TableName
from schemas.reasons import OrderReason, SetAsideReason
from schemas.residency import Decisions, ResidencyRecord
from schemas.rows import Row
from schemas.settings import Fleet, Worker


@dataclass(frozen=True)
class Cut:
    """One consistent checkpoint: everything that follows from the records before `next_offset`."""

    next_offset: int
    dirty: bool
    rows: list[Row] = field(default_factory=list)
    checkpoints: list[tuple[bytes, bytes]] = field(default_factory=list)
    decisions: list[Decisions] = field(default_factory=list)
    """For all other shards."""


def one_in(rate: float) -> int:
    """Return the n for which one block in n is nearest to the sample rate."""
    return max(1, round(1 / rate))


class FleetState(State[ResidencyRecord, Cut]):
    """Who holds and who lost which block of a shard.

    Reads no clock and does no IO: the same records give the same rows, however often it was restarted.
    """

    @damaged_if_it_fails(HEAD_KEY)
    def __init__(
        self,
        shard: int,
        settings: Fleet,
        *,
        carry_seconds: float,
        shards: int = 1,
        latest: Mapping[bytes, bytes] = MappingProxyType({}),
        forget_seconds: float = Worker().forget_seconds,
    ) -> None:
        """Go on from the last base in `latest`, the last committed value of every checkpoint key, if any.

        Redundancy is carried forward for `carry_seconds` after the last change. A source without blocks,
        remembered losses or changes for `forget_seconds` is forgotten. Raises CheckpointFormatUnknown,
        CheckpointCorrupt when records are missing, and CheckpointDamaged when they do not fit together.
        """
        base = sound_base(latest, one_in(settings.sample_rate))
        self.shard = shard
        self.head = head = base.head
        head.format = FORMAT
        self.index = Index(base.tables, base.rows)
        self.names = names_in(head)
        self._open = OpenWindows(head, self.names, shard=shard, packed=base.tables)
        self._transfers = Transfers(head, base.tables, shard=shard, shards=shards)
        self._comparison = HashComparison(settings.compare_after, head, base.tables)
        self._pools = PoolNames(self.names, self._open)
        self._splitter = PieceSplitter(
            self.names.sources, self._pools, self._comparison, horizon=settings.horizon_seconds
        )
        self._hash_groups = HashGroups(shard, self._comparison, self.names.sources)
        self._bases = Bases(head, self._tables, shard=shard)
        self.applying = 0
        self._progress = Progress(head.progress)
        self._undecided = Undecided(base.tables)
        self._waiting = WaitingChanges(base.tables, self.names.sources)
        self._out_of_order: Counter[OrderReason] = Counter()
        self._settings = settings
        self._forget_seconds = forget_seconds
        self._count_forgotten = 0
        self._carry_windows = int(carry_seconds // windows.WINDOW_SECONDS)
        self._rows: list[Row] = []
        self._applied = 0
        """Offset of the last record."""
        self._saved_offset = head.next_offset
        self._removed = any(source.unsure_until == math.inf for source in self.names.sources.by_name.values())
        """Whether records were removed, and no change shows yet up to when."""

    def _tables(self) -> dict[TableName, Table]:
        return (
            self.index.copied()
            | self._open.copied()
            | self._transfers.copied()
            | self._comparison.copied()
            | self._undecided.copied()
            | self._waiting.copied()
        )

    @property
    def next_offset(self) -> int:
        """Return the offset of the first record that is not yet in the state."""
        return self.head.next_offset

    @next_offset.setter
    def next_offset(self, offset: int) -> None:
        self.head.next_offset = offset

    @property
    def source_count(self) -> int:
        return len(self.names.sources.by_name)

    def refusal(self, record: ResidencyRecord) -> SetAsideReason | None:
        """Return why the record must be set aside, None if `apply` may have it; changes nothing."""
        return None if is_acceptable(record) else residency_refusal(record)

    def set_aside(self, offset: int, refused: RecordRefused) -> None:
        """Leave out the record at `offset`: earlier losses of its sources may be unknown from here on."""
        for name, source in self.names.sources.by_name.items():
            if refused.names(*name):
                until = max(source.seen, self._latest) + self._settings.horizon_seconds
                source.unsure_until = max(source.unsure_until, until)
        self.next_offset = offset + 1

    def skip_removed(self, beginning: int) -> None:
        """Go on at `beginning`: unapplied records before it are gone, and they may be of any source.

        Until when losses may be unknown shows the first change that is left (`_end_removed`).
        """
        for source in self.names.sources.by_name.values():
            source.unsure_until = math.inf
        self._removed = True
        self.next_offset = beginning

    def _end_removed(self, record: ResidencyRecord) -> None:
        """Take the record, if something changes in it, as the end of what was removed.

        What counts next may be older: changes that waited when the records before it were removed.
        """
        if (latest := latest_time(record)) == -math.inf:
            return
        self._removed = False
        for source in self.names.sources.by_name.values():
            if source.unsure_until == math.inf:
                source.unsure_until = latest + self._settings.horizon_seconds

    def apply(self, offset: int, record: ResidencyRecord) -> None:
        """Apply the record at `offset`, which `refusal` has accepted."""
        self._forget_sources()
        self.next_offset = offset + 1
        self._applied = offset
        if record.decisions is not None:
            self._transfers.decided_elsewhere(record.decisions)
            self._rows += self._transfers.count(self.index, self._open, offset)
            return
        if self._removed:
            self._end_removed(record)
        until = self._progress.heard(record) - self._settings.order_seconds
        for decided in self._undecided.decided(record):
            self._wait(decided)
        before = self._undecided.count
        for late in self._undecided.given_up(record, until, self._settings.max_waiting - self._waiting.count):
            self._wait(late)
        self._out_of_order["unknown_role"] += before - self._undecided.count
        # Undecided changes may turn out to be due as early as they happened: later ones wait for them.
        self._count_due(min(until, math.nextafter(self._undecided.earliest, 0.0)), offset)

    def _wait(self, record: ResidencyRecord) -> None:
        """Let the changes of a record wait until they are due."""
        if not record.sources:
            return
        pieces = self._splitter.pieces(record)
        self.index.room_for_source(len(self.head.sources) - 1)
        if pieces is None:
            return
        named = record.partitions > 0
        found, late = self._waiting.add(
            pieces, named=named, one_in=self.head.one_in, counted_to=self.head.counted_to
        )
        self.head.followed += found
        if late and named:
            self._out_of_order["late"] += late

    def _count_due(self, until: float, offset: int) -> None:
        """Count all changes that are due, then the earliest beyond the number that may wait."""
        self._count(self._waiting.take(until), offset)
        if (beyond := self._waiting.beyond(self._settings.max_waiting)) > -math.inf:
            waited = self._waiting.count
            self._count(self._waiting.take(beyond), offset)
            self._out_of_order["too_many_wait"] += waited - self._waiting.count

    def _count(self, due: Due | None, offset: int) -> None:
        if due is not None:
            self.head.counted_to = max(self.head.counted_to, due.latest)
            self._follow(due.changes, due.pieces, offset)
            self._comparison.match_first_blocks(due.changes, due.origins)

    def apply_all(self, records: Sequence[tuple[int, ResidencyRecord]]) -> None:
        """Apply pairs of offset and record, one after the other."""
        for self.applying, record in records:
            self.apply(self.applying, record)

    def _follow(self, changes: Changes, pieces: Pieces, offset: int) -> None:
        index, horizon, max_losses = self.index, self._settings.horizon_seconds, self._settings.max_ghosts
        total, blocks_each = len(changes.keys), 2 if (pieces.bits != GPU).any() else 1
        at = 0
        while at < total:
            end = min(at + CHUNK, total)
            index.make_room(end - at, blocks_each=blocks_each, max_losses=max_losses)
            self._transfers.make_room(end - at)
            why = -1
            while why != DONE:
                at, why = follow(
                    index.blocks,
                    index.pairs,
                    index.losses,
                    self._open.cells,
                    self._open.gauges,
                    index.clock,
                    index.refills,
                    changes,
                    pieces,
                    self._open.ended,
                    self._transfers.waiting,
                    at,
                    end,
                    offset,
                    horizon,
                    max_losses,
                )
                if why == REFILLS_FULL:
                    index.refills = make_room(index.refills)
                elif why == ENDED_FULL:
                    self._rows += self._open.ended_fills()
                elif why == CLOCK_MOVED:
                    self._window_begins(windows.window_of(changes.times[at]), offset)
        self._rows += self._open.ended_fills()
        self._rows += self._transfers.count(index, self._open, offset)
        self._open.gauges_changed(int(index.clock.counters[WINDOW]))

    def _window_begins(self, window: int, offset: int) -> None:
        index, before = self.index, self.index.window
        if before is not None:
            self._open.gauges_changed(before)
            trusts = self._trusts()
            self._rows += self._open.redundancy(window - 1, trusts)
            self._rows += hot_prefixes(
                index,
                self.names.lineages,
                trusts,
                window=before,
                shard=self.shard,
                listed=self._settings.hot_prefixes,
                one_in=self.head.one_in,
                version=offset,
            )
            index.refills = no_refills()
        index.clock.counters[WINDOW] = window

    def _trusts(self) -> dict[int, int]:
        """Return the worst trust of the sources that are in the tables, per space."""
        worst: dict[int, int] = {}
        pairs = self.index.clock.pairs_of_source
        for source in self.names.sources.by_name.values():
            if source.trust and pairs[source.number]:
                for space in self._open.spaces_of_source.get(source.number, ()):
                    worst[space] = max(worst.get(space, 0), source.trust)
        return worst

    def cut(self, now: float) -> Cut:
        """Return what must be saved at wall clock `now`; from here on it counts as saved."""
        return at_once(self.cutting(now, now))

    def cutting(self, now: float, heard_to: float) -> Steps[Cut]:
        """Do the same in steps. Nothing may be applied between the first and the last.

        Redundancy is carried forward to `heard_to`.
        """
        rows, self._rows = self._rows, []
        rows += self._open.open_fills()
        yield
        window = self.index.window
        if window is not None:
            carried = min(windows.window_of(heard_to), window + self._carry_windows)
            rows += self._open.redundancy(max(window, carried), self._trusts(), again=True)
        yield
        rows += self._hash_groups.changed(self._applied)
        decisions = [*self._transfers.take(self._latest)]
        checkpoints = self._bases.take(now, self.index.entries, self._latest)
        if not rows and not checkpoints and self.next_offset == self._saved_offset:
            return Cut(self.next_offset, dirty=False)
        self._saved_offset = self.next_offset
        return Cut(self.next_offset, dirty=True, rows=rows, checkpoints=checkpoints, decisions=decisions)

    def errand(self, now: float) -> Callable[[], None] | None:
        """Return what would delay a cut at wall clock `now`, to be run in a thread before it; often None.

        Nothing may be applied or cut while it runs.
        """
        copying, most = self._bases.due(now, self.index.entries, self._latest), self._settings.max_ghosts
        if not copying and not self.index.wants_room(max_losses=most):
            return None

        def done() -> None:
            self.index.grow_early(max_losses=most)
            if copying:
                self._bases.begin(now)

        return done

    @property
    def _latest(self) -> float:
        """Return the latest event time, 0 before the first change."""
        return float(self.index.clock.time[0])

    def take_forgotten(self) -> int:
        """Return how many sources were forgotten since the last call."""
        count, self._count_forgotten = self._count_forgotten, 0
        return count

    def take_out_of_order(self) -> Counter[OrderReason]:
        """Return how many changes did not count in event order since the last call, by reason."""
        self._out_of_order["undecided"] += self._transfers.take_given_up()
        found, self._out_of_order = self._out_of_order, Counter()
        return +found

    def _forget_sources(self) -> None:
        """Free the numbers of sources that are gone, once in each window of the clock.

        This is done between two records, so that the log alone determines which ones they are.
        """
        if self.index.window == self.head.looked_in:
            return
        self.head.looked_in = self.index.window
        clock = self.index.clock
        before = clock.time[0] - self._forget_seconds
        gone = [
            source
            for source in self.names.sources.by_name.values()
            if source.seen < before and not clock.pairs_of_source[source.number]
        ]
        if gone:
            waits = self._waiting.sources() | self._transfers.sources()
            gone = [
                source
                for source in gone
                if source.number not in waits
                and not self._undecided.waits_of((source.replica, source.dp_rank))
            ]
        if gone:
            self._rows += self._hash_groups.changed(self._applied)
        self._count_forgotten += len(gone)
        for source in gone:
            self._rows += self._open.forget(source.number)
            self._pools.forget(source.number)
            self._comparison.forget(source.number)
            self._waiting.forget(source.number)
            self._undecided.forget((source.replica, source.dp_rank))
            clock.clears_of_source[source.number] = 0
            self.names.sources.forget(source)
