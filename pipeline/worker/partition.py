"""One owned partition of an agent's topic: its state, its checkpoint log, and what happens to each record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Protocol

import msgspec

from pipeline.errors import (
    CheckpointCorrupt,
    CheckpointDamaged,
    CheckpointFormatUnknown,
    CheckpointUnreadable,
    OffsetGap,
    RecordFatal,
)
from pipeline.kafka.acceptance import NOT_APPLICABLE
from pipeline.kafka.refusal import RecordRefused, SourceName
from pipeline.residency.intake.plain_runs import PlainRun
from pipeline.residency.intake.reading import Reading
from pipeline.residency.steps import Steps
from pipeline.worker.checkpoint.log import CheckpointLog
from pipeline.worker.checkpoint.record import Record
from pipeline.worker.left_out import LeftOutEvents
from pipeline.worker.set_aside import Offered, SetAside
from pipeline.worker.telemetry import WorkerMetrics
from schemas.checkpoints import TOPICS_KEY, StateTopics
from schemas.reasons import LimitReason, OrderReason, SetAsideReason, WithoutContent
from schemas.rows import Row


class Cut(Protocol):
    """One consistent checkpoint of a state, as far as every agent has it."""

    @property
    def next_offset(self) -> int: ...
    @property
    def dirty(self) -> bool: ...
    @property
    def rows(self) -> list[Row]: ...
    @property
    def checkpoints(self) -> list[tuple[bytes, bytes]]: ...


class State(Protocol):
    """What an agent keeps of one partition: pure, in memory."""

    next_offset: int
    applying: int

    @property
    def sources(self) -> Sized: ...
    def refusal(self, record: Any) -> SetAsideReason | None:
        """Return why a record must be set aside, whatever was applied before it."""

    def apply_all(self, records: Sequence[tuple[int, Any]]) -> None: ...
    def set_aside(self, offset: int, refused: RecordRefused) -> None: ...
    def skip_removed(self, beginning: int) -> None:
        """Go on at `beginning`: the records before it that were not applied are gone."""

    def cutting(self, now: float, heard_to: float) -> Steps[Any]:
        """Cut at wall clock `now`; what says nothing is known to be as it is up to `heard_to`."""

    def take_forgotten(self) -> int: ...
    def errand(self, now: float) -> Callable[[], None] | None: ...


class ReadAhead(Protocol):
    """Reads several records at once; runs of several records only where they may be `together`."""

    def __call__(self, offered: Sequence[Offered], *, together: bool) -> Reading: ...


def read_nothing_ahead(offered: Sequence[Offered], *, together: bool) -> Reading:
    """Leave all records to `decode`."""
    return Reading([], [], [*range(len(offered))], [])


@dataclass(frozen=True)
class Role:
    """An agent: which topics it reads and writes, and its pure parts."""

    name: str
    """Also ends its consumer group's name."""
    topic: str
    """Topic read."""
    checkpoints: str
    """Topic of its checkpoints, as many partitions."""
    set_aside: str
    """Topic for records that cannot be applied."""
    contiguous: bool
    """The topic's producers are not transactional, so its offsets have no holes."""
    committed: bool
    """Read committed records only."""
    unsaved_bytes: int
    """Of values, that wait for a round at most: one is made early then. What a state holds for it, and what
    cutting that takes, is several times as much, and the kernel takes longer to give new memory than a record
    takes to be applied."""
    chunk_bytes: int
    """Of keys and values, that are applied in one go. What it costs to begin with a source or a record is
    shared by more changes where more is applied; meanwhile the event loop stands still."""
    decode: Callable[[bytes | None, Iterable[tuple[str, bytes]], bytes | None], Any]
    """(value, headers, key) to a record. Raises RecordRefused."""
    sources_of: Callable[[Any], tuple[SourceName, ...]]
    """The sources that a decoded record names."""
    saved_topics: frozenset[str]
    """Topics that a state is of: the one read, and those that were told what follows from it."""
    restore: Callable[[int, Mapping[bytes, bytes]], State]
    """(partition, last value of each checkpoint key) to a state."""
    outputs: Callable[[Any], Sequence[Record]]
    """Records, besides checkpoints, that a cut commits."""
    bounded: Callable[[Any, float], Any] = lambda record, written_at: record
    """(record, the log's time of it) to the record with times that the log's allows."""
    read_to: Callable[[Any, float], None] = lambda state, time: None
    """Tells a state before each cut up to which time in the log its partition is read."""
    continued: Callable[[Any, int], None] = lambda state, offset: None
    """Tells a state without a checkpoint up to which offset a former one committed its outputs."""
    troubles: Callable[[Any], Mapping[str, int]] = lambda state: {}
    """Of a state, how many of its sources have which trouble."""
    read_ahead: ReadAhead = read_nothing_ahead
    """Reads several records at once, and leaves some to `decode`."""
    left_out: Callable[[Any], Iterable[tuple[SourceName, Mapping[LimitReason, int]]]] = lambda state: ()
    """Of a state, how many events of which source limits kept out, by reason, since it was asked last."""
    without_content: Callable[[Any], Mapping[WithoutContent, int]] = lambda state: {}
    """Of a state, how many blocks got no content hash, by reason, since it was asked last."""
    out_of_order: Callable[[Any], Mapping[OrderReason, int]] = lambda state: {}
    """Of a state, how many changes did not count in event order, by reason, since it was asked last."""

    def restored(self, partition: int, latest: Mapping[bytes, bytes]) -> State:
        """Return the state that the checkpoint of a partition holds. Raises CheckpointUnreadable."""
        try:
            return self.restore(partition, latest)
        except (CheckpointCorrupt, CheckpointDamaged, CheckpointFormatUnknown) as error:
            raise CheckpointUnreadable(self.checkpoints, partition, str(error)) from error


@dataclass(frozen=True)
class _Read:
    """Records that came together, read and judged; the state knows nothing of them yet."""

    accepted: list[tuple[int, Any]]
    """In order of their first offsets."""
    refused: dict[int, RecordRefused]
    """By place."""
    alone: set[int]
    """Places of the refused, and of those whose source was not known when runs were joined."""


class OwnedPartition:
    """Offers records to the state, in offset order, exactly once each."""

    def __init__(
        self,
        role: Role,
        log: CheckpointLog,
        state: State,
        metrics: WorkerMetrics,
        *,
        heard: int = 0,
        committed: int = 0,
        topics: Mapping[str, str] | None = None,
        fetched: Callable[[], int] = lambda: -1,
    ) -> None:
        """`heard`: before this offset there were records, or a former owner had written what follows from
        them, when the state was loaded. `committed`: a former owner had committed all that follows from the
        records before this offset. `topics`: ids of the state's topics by name. `fetched` returns the
        offset of the newest record that came, also if it was not offered yet.
        """
        self.role = role
        self.log = log
        self.state = state
        self.partition = log.partition
        self.newest = 0.0
        """Time in the log of the newest record offered since the last cut, 0 if none was."""
        self.unsaved = 0
        """Bytes of the values offered since the last cut."""
        self.leaves = False
        """It is given up: what came and was not offered may be let go."""
        self._in_cut = False
        self._heard = heard
        self._committed = committed
        self._fetched = fetched
        self._cut_at: float | None = None
        """Wall clock of the last cut."""
        self._topics = msgspec.msgpack.encode(StateTopics(dict(topics))) if topics else b""
        self._read_to = 0.0
        """Time in the log of the newest record offered."""
        self._metrics = metrics
        self._applied = 0
        self._left_out = LeftOutEvents(metrics)
        self._set_aside = SetAside(role.name, role.topic, self.partition, role.set_aside, metrics)

    def repeats(self, cut: Cut) -> bool:
        """Return whether a former owner had committed all that a cut says."""
        return cut.next_offset < self._committed

    def offer_all(self, several: Sequence[Offered]) -> None:
        """Apply records that came together, or set them aside for a reason that is counted.

        Raises OffsetGap, RecordFatal.
        """
        assert not self._in_cut, "a cut is of one offset"
        self.newest = max(self.newest, *(offered.written_at for offered in several))
        self._read_to = max(self._read_to, self.newest)
        due = self._due(several)
        if due:
            self.unsaved += sum(len(offered.value or b"") for offered in due)
            self._offer(due)

    def _offer(self, several: Sequence[Offered]) -> None:
        read = self._read(several)
        if not read.alone:
            self._apply(read.accepted, count=len(several))
            return
        # What comes before such a record and behind it must not be read as one.
        decoded = dict(read.accepted)
        begin = 0
        for at in sorted(read.alone):
            if begin < at:
                self._offer(several[begin:at])
            offered = several[at]
            if at in read.refused:
                self._set_aside.add(offered, read.refused[at])
                self.state.set_aside(offered.offset, read.refused[at])
            else:
                self._apply([(offered.offset, decoded[offered.offset])], count=1)
            begin = at + 1
        if begin < len(several):
            self._offer(several[begin:])

    def _due(self, several: Sequence[Offered]) -> Sequence[Offered]:
        """Return the records that were not applied yet. Raises OffsetGap."""
        next_offset = self.state.next_offset
        repeated = sum(offered.offset < next_offset for offered in several)
        if repeated:
            self._metrics.skipped.labels(self.role.name, "repeated").inc(repeated)
            several = several[repeated:]
        if self.role.contiguous:
            for offset, offered in enumerate(several, next_offset):
                if offered.offset != offset:
                    raise OffsetGap(self.role.topic, self.partition, offset, offered.offset)
        return several

    def _read(self, several: Sequence[Offered]) -> _Read:
        role = self.role
        reading = role.read_ahead(several, together=True)
        accepted: list[tuple[int, Any]] = []
        refused: dict[int, RecordRefused] = {}
        read: list[tuple[int, Any]] = [(int(run.offsets[0]), run) for run in reading.runs]
        for first, record in [*read, *((several[at].offset, partly) for at, partly in reading.partly)]:
            reason = self.state.refusal(record)
            if reason is None:
                accepted.append((first, record))
                continue
            offsets = record.offsets.tolist() if isinstance(record, PlainRun) else [first]
            refusal = RecordRefused(reason, NOT_APPLICABLE, role.sources_of(record))
            refused |= {offset - several[0].offset: refusal for offset in offsets}
        for at in reading.others:
            try:
                accepted.append((several[at].offset, self._accepted(several[at])))
            except RecordRefused as error:
                refused[at] = error
        accepted.sort(key=itemgetter(0))
        return _Read(accepted, refused, {*refused, *(reading.unknown if reading.runs else ())})

    def _apply(self, accepted: Sequence[tuple[int, Any]], *, count: int) -> None:
        """Apply records, `count` of them with all that runs are made of."""
        if not accepted:
            return
        state = self.state
        try:
            state.apply_all(accepted)
        except Exception as error:
            raise RecordFatal(self.role.topic, self.partition, state.applying) from error
        self._applied += count

    def _heard_to(self, now: float) -> float:
        """Return up to when what says nothing is known to be as it is; `now` is the wall clock.

        Of records that wait since before this worker came nobody knows yet whose they are: rows that carry
        a source forward would all be written again. And rows of later windows than a former owner's would
        show an older state than its own rows, until what it had applied is applied again.
        """
        if self.state.next_offset < self._heard:
            return min(now, self._read_to)
        return now

    def _known_to(self, now: float) -> float:
        """Return the time in the log up to which everything is in the state, 0 if that is not known.

        Where nothing came since the last cut, nothing had been written when that was made: a fetch takes half
        as long as from one cut to the next.
        """
        last, self._cut_at = self._cut_at, now
        next_offset = self.state.next_offset
        if self.newest or self.leaves or next_offset < self._heard or self._fetched() >= next_offset:
            return self._read_to
        return max(self._read_to, last or 0.0)

    def _accepted(self, offered: Offered) -> Any:
        """Return the decoded record, of which nothing in the state knows yet. Raises RecordRefused."""
        record = self.role.decode(offered.value, offered.headers, offered.key)
        reason = self.state.refusal(record)
        if reason is not None:
            raise RecordRefused(reason, NOT_APPLICABLE, self.role.sources_of(record))
        return self.role.bounded(record, offered.written_at)

    def cutting(self, now: float) -> Steps[tuple[Any, list[Record]]]:
        """Cut the state in steps, while nothing is offered: the cut, and the records it commits."""
        self._in_cut = True
        self.role.read_to(self.state, self._known_to(now))
        cut = yield from self.state.cutting(now, self._heard_to(now))
        self._in_cut = False
        self.newest = 0.0
        self.unsaved = 0
        labels = (self.role.name, str(self.partition))
        self._metrics.records.labels(*labels).inc(self._applied)
        self._applied = 0
        self._metrics.next_offset.labels(*labels).set(self.state.next_offset)
        self._metrics.sources.labels(*labels).set(len(self.state.sources))
        self._metrics.forgotten.labels(self.role.name).inc(self.state.take_forgotten())
        self._left_out.add(self.role.left_out(self.state))
        for reason, blocks in self.role.without_content(self.state).items():
            self._metrics.without_content.labels(reason).inc(blocks)
        for late, changes in self.role.out_of_order(self.state).items():
            self._metrics.out_of_order.labels(late).inc(changes)
        for trouble, count in self.role.troubles(self.state).items():
            self._metrics.troubled.labels(*labels, trouble).set(count)
        if not cut.dirty:
            return cut, []
        records = [
            Record(self.role.checkpoints, self.partition, key, value) for key, value in cut.checkpoints
        ]
        if self._topics:
            # Each time, and last: whoever reads only the end of the checkpoints finds it there.
            records.append(Record(self.role.checkpoints, self.partition, TOPICS_KEY, self._topics))
        return cut, [*self.role.outputs(cut), *self._set_aside.take(), *records]
