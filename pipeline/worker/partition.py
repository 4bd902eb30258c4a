"""One owned partition of an agent's topic: its state, its checkpoint log, and what happens to each record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import structlog

from connectors.process.limited_log import LogLimiter
from pipeline.errors import CheckpointCorrupt, CheckpointUnreadable, OffsetGap
from pipeline.kafka.decoding import RecordUndecodable
from pipeline.worker.checkpoints import CheckpointLog, Record
from pipeline.worker.telemetry import WorkerMetrics
from schemas.rows import Row

_log = structlog.get_logger(__name__)


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

    @property
    def sources(self) -> Sized: ...
    def apply(self, offset: int, record: Any) -> None: ...
    def skip(self, offset: int) -> None: ...
    def cut(self, now: float) -> Any: ...


@dataclass(frozen=True)
class Role:
    """An agent: which topics it reads and writes, and its pure parts."""

    name: str
    """Also ends its consumer group's name."""
    topic: str
    """Topic read."""
    checkpoints: str
    """Topic of its checkpoints, as many partitions."""
    contiguous: bool
    """The topic's producers are not transactional, so its offsets have no holes."""
    committed: bool
    """Read committed records only."""
    decode: Callable[[bytes | None, Iterable[tuple[str, bytes]]], Any]
    restore: Callable[[int, Mapping[bytes, bytes]], State]
    """(partition, last value of each checkpoint key) to a state."""
    outputs: Callable[[Any], Sequence[Record]]
    """Records, besides checkpoints, that a cut commits."""
    continued: Callable[[Any, int], None] = lambda state, offset: None
    """Tells a state without a checkpoint up to which offset a former one committed its outputs."""
    troubles: Callable[[Any], Mapping[str, int]] = lambda state: {}
    """Of a state, how many of its sources have which trouble."""

    def restored(self, partition: int, latest: Mapping[bytes, bytes]) -> State:
        """Return the state that the checkpoint of a partition holds. Raises CheckpointUnreadable."""
        try:
            return self.restore(partition, latest)
        except (CheckpointCorrupt, msgspec.DecodeError) as error:
            raise CheckpointUnreadable(self.checkpoints, partition, str(error)) from error


class OwnedPartition:
    """Offers records to the state, in offset order, exactly once each."""

    def __init__(self, role: Role, log: CheckpointLog, state: State, metrics: WorkerMetrics) -> None:
        self.role = role
        self.log = log
        self.state = state
        self.partition = log.partition
        self._metrics = metrics
        self._applied = 0
        self._limiter = LogLimiter()

    def offer(self, offset: int, value: bytes | None, headers: Iterable[tuple[str, bytes]]) -> None:
        """Apply the record, or leave it out for a reason that is counted. Raises OffsetGap."""
        state = self.state
        if offset != state.next_offset:
            if offset < state.next_offset:
                self._metrics.skipped.labels(self.role.name, "repeated").inc()
                return
            if self.role.contiguous:
                raise OffsetGap(self.role.topic, self.partition, state.next_offset, offset)
        try:
            record = self.role.decode(value, headers)
        except RecordUndecodable as error:
            self._metrics.skipped.labels(self.role.name, "undecodable").inc()
            if (suppressed := self._limiter.admit("undecodable")) is not None:
                _log.error(
                    "record left out: it cannot be decoded",
                    topic=self.role.topic,
                    partition=self.partition,
                    offset=offset,
                    reason=str(error),
                    **suppressed,
                )
            state.skip(offset)
            return
        state.apply(offset, record)
        self._applied += 1

    def cut(self, now: float) -> tuple[Any, list[Record]]:
        """Cut the state; return the cut and the records its transaction holds."""
        cut = self.state.cut(now)
        labels = (self.role.name, str(self.partition))
        self._metrics.records.labels(*labels).inc(self._applied)
        self._applied = 0
        self._metrics.next_offset.labels(*labels).set(self.state.next_offset)
        self._metrics.sources.labels(*labels).set(len(self.state.sources))
        for trouble, count in self.role.troubles(self.state).items():
            self._metrics.troubled.labels(*labels, trouble).set(count)
        if not cut.dirty:
            return cut, []
        records = [
            Record(self.role.checkpoints, self.partition, key, value) for key, value in cut.checkpoints
        ]
        return cut, [*self.role.outputs(cut), *records]
