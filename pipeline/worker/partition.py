"""One owned partition of an agent's topic: its state, its checkpoint log, and what happens to each record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Protocol

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
from pipeline.worker.checkpoint.log import CheckpointLog, Record
from pipeline.worker.left_out import LeftOutEvents
from pipeline.worker.set_aside import Offered, SetAside
from pipeline.worker.telemetry import WorkerMetrics
from schemas.reasons import LimitReason, SetAsideReason, WithoutContent
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
    def cut(self, now: float) -> Any: ...
    def take_forgotten(self) -> int: ...
    def errand(self, now: float) -> Callable[[], None] | None: ...


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
    decode: Callable[[bytes | None, Iterable[tuple[str, bytes]], bytes | None], Any]
    """(value, headers, key) to a record. Raises RecordRefused."""
    sources_of: Callable[[Any], tuple[SourceName, ...]]
    """The sources that a decoded record names."""
    restore: Callable[[int, Mapping[bytes, bytes]], State]
    """(partition, last value of each checkpoint key) to a state."""
    outputs: Callable[[Any], Sequence[Record]]
    """Records, besides checkpoints, that a cut commits."""
    bounded: Callable[[Any, float], Any] = lambda record, written_at: record
    """(record, the log's time of it) to the record with times that the log's allows."""
    continued: Callable[[Any, int], None] = lambda state, offset: None
    """Tells a state without a checkpoint up to which offset a former one committed its outputs."""
    troubles: Callable[[Any], Mapping[str, int]] = lambda state: {}
    """Of a state, how many of its sources have which trouble."""
    read_ahead: Callable[[Sequence[Offered]], Sequence[Any | None]] = lambda offered: [None] * len(offered)
    """Reads several records at once; None for those that `decode` must."""
    left_out: Callable[[Any], Iterable[tuple[SourceName, Mapping[LimitReason, int]]]] = lambda state: ()
    """Of a state, how many events of which source limits kept out, by reason, since it was asked last."""
    without_content: Callable[[Any], Mapping[WithoutContent, int]] = lambda state: {}
    """Of a state, how many blocks got no content hash, by reason, since it was asked last."""

    def restored(self, partition: int, latest: Mapping[bytes, bytes]) -> State:
        """Return the state that the checkpoint of a partition holds. Raises CheckpointUnreadable."""
        try:
            return self.restore(partition, latest)
        except (CheckpointCorrupt, CheckpointDamaged, CheckpointFormatUnknown) as error:
            raise CheckpointUnreadable(self.checkpoints, partition, str(error)) from error


class OwnedPartition:
    """Offers records to the state, in offset order, exactly once each."""

    def __init__(self, role: Role, log: CheckpointLog, state: State, metrics: WorkerMetrics) -> None:
        self.role = role
        self.log = log
        self.state = state
        self.partition = log.partition
        self.newest = 0.0
        """Time in the log of the newest record offered since the last cut, 0 if none was."""
        self._metrics = metrics
        self._applied = 0
        self._left_out = LeftOutEvents(metrics)
        self._set_aside = SetAside(role.name, role.topic, self.partition, role.set_aside, metrics)

    def offer_all(self, several: Sequence[Offered]) -> None:
        """Apply records that came together, or set them aside for a reason that is counted.

        Raises OffsetGap, RecordFatal.
        """
        self.newest = max(self.newest, several[-1].written_at)
        accepted: list[tuple[int, Any]] = []
        next_offset = self.state.next_offset
        for offered, read in zip(several, self.role.read_ahead(several), strict=True):
            offset = offered.offset
            if offset != next_offset:
                if offset < next_offset:
                    self._metrics.skipped.labels(self.role.name, "repeated").inc()
                    continue
                if self.role.contiguous:
                    raise OffsetGap(self.role.topic, self.partition, next_offset, offset)
            try:
                accepted.append((offset, self._accepted(offered, read)))
            except RecordRefused as refused:
                self._apply(accepted)
                accepted = []
                self._set_aside.add(offered, refused)
                self.state.set_aside(offset, refused)
            next_offset = offset + 1
        self._apply(accepted)

    def _apply(self, accepted: Sequence[tuple[int, Any]]) -> None:
        if not accepted:
            return
        state = self.state
        try:
            state.apply_all(accepted)
        except Exception as error:
            raise RecordFatal(self.role.topic, self.partition, state.applying) from error
        self._applied += len(accepted)

    def _accepted(self, offered: Offered, read: Any | None) -> Any:
        """Return the decoded record, of which nothing in the state knows yet. Raises RecordRefused."""
        record = read
        if record is None:
            record = self.role.decode(offered.value, offered.headers, offered.key)
        reason = self.state.refusal(record)
        if reason is not None:
            raise RecordRefused(reason, NOT_APPLICABLE, self.role.sources_of(record))
        return self.role.bounded(record, offered.written_at)

    def cut(self, now: float) -> tuple[Any, list[Record]]:
        """Cut the state; return the cut and the records its transaction holds."""
        cut = self.state.cut(now)
        self.newest = 0.0
        labels = (self.role.name, str(self.partition))
        self._metrics.records.labels(*labels).inc(self._applied)
        self._applied = 0
        self._metrics.next_offset.labels(*labels).set(self.state.next_offset)
        self._metrics.sources.labels(*labels).set(len(self.state.sources))
        self._metrics.forgotten.labels(self.role.name).inc(self.state.take_forgotten())
        self._left_out.add(self.role.left_out(self.state))
        for reason, blocks in self.role.without_content(self.state).items():
            self._metrics.without_content.labels(reason).inc(blocks)
        for trouble, count in self.role.troubles(self.state).items():
            self._metrics.troubled.labels(*labels, trouble).set(count)
        if not cut.dirty:
            return cut, []
        records = [
            Record(self.role.checkpoints, self.partition, key, value) for key, value in cut.checkpoints
        ]
        return cut, [*self.role.outputs(cut), *self._set_aside.take(), *records]
