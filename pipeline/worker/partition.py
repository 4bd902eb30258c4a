"""One owned partition of an agent's topic: its state, its checkpoint log, and what happens to each record."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec
import structlog

from connectors.process.limited_log import LogLimiter
from pipeline.applying.applier import Applier
from pipeline.applying.offered import Offered
from pipeline.applying.state import Cut, State
from pipeline.applying.steps import Steps
from pipeline.kafka.refusal import RecordRefused, SourceName
from pipeline.worker.checkpoint.log import CheckpointLog
from pipeline.worker.checkpoint.record import Record
from pipeline.worker.roles.role import Role
from pipeline.worker.set_aside import KeptAside
from pipeline.worker.telemetry import WorkerMetrics
from schemas.checkpoints import TOPICS_KEY, StateTopics
from schemas.reasons import LimitReason

LAG_SECONDS = 60.0
"""How long a cut says how far the log's clock may be behind. Records further behind only were read late."""

_log = structlog.get_logger(__name__)

_Record = TypeVar("_Record")
_Cut = TypeVar("_Cut", bound=Cut)


class OwnedPartition(Generic[_Record, _Cut]):
    """Applies records to the state, and cuts it for the tables, the log and the next owner."""

    def __init__(
        self,
        role: Role[_Record, _Cut],
        log: CheckpointLog,
        state: State[_Record, _Cut],
        metrics: WorkerMetrics,
        *,
        heard: int,
        committed: int,
        topics: Mapping[str, str],
        fetched: Callable[[], int],
    ) -> None:
        """`heard`: offset before which, when the state was loaded, there were records, or a former owner had
        written what follows from them. `committed`: offset before which a former owner had committed all
        that follows from the records. `topics`: ids of the state's topics by name. `fetched` returns the
        offset of the newest record fetched, even if it was not offered yet.
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
        """It is being given up: records that were fetched and not offered may be dropped."""
        self._in_cut = False
        self._heard = heard
        self._committed = committed
        self._fetched = fetched
        self._cut_at: float | None = None
        """Wall clock of the last cut."""
        self._lags: deque[tuple[float, float]] = deque()
        """Wall clock of cuts, and how far the newest record before was behind: at least as far as the log's
        clock is behind ours."""
        self._topics = msgspec.msgpack.encode(StateTopics(dict(topics))) if topics else b""
        self._read_to = 0.0
        """Time in the log of the newest record offered."""
        self._metrics = metrics
        self._left_out = LeftOutEvents(metrics)
        self._set_aside = KeptAside(role.name, role.topic, self.partition, role.set_aside, metrics)
        self._applier = Applier(
            role.reader,
            state,
            self.partition,
            set_aside=self._keep_aside,
            repeated=lambda records: metrics.skipped.labels(role.name, "repeated").inc(records),
        )

    def repeats(self, cut: Cut) -> bool:
        """Return whether a former owner had committed all that a cut contains."""
        return cut.next_offset < self._committed

    def _keep_aside(self, offered: Offered, refused: RecordRefused) -> None:
        # What a former owner had committed is in the topic already.
        if offered.offset >= self._committed:
            self._set_aside.add(offered, refused)

    def offer_all(self, several: Sequence[Offered]) -> None:
        """Apply records that came together, or set them aside for a reason that is counted.

        Raises OffsetGap, RecordFatal.
        """
        assert not self._in_cut, "a cut is of one offset"
        self.newest = max(self.newest, *(offered.written_at for offered in several))
        self._read_to = max(self._read_to, self.newest)
        self.unsaved += sum(len(offered.value or b"") for offered in self._applier.offer(several))

    def _heard_to(self, now: float) -> float:
        """Return up to when sources without news are known to be as they are; `now` is the wall clock.

        Records from before this worker came may still wait, of any source: rows carried forward for a source
        would all be written again. And rows of later windows than a former owner's would show an older state
        than its own rows, until what it had applied is applied again.
        """
        if self.state.next_offset < self._heard:
            return min(now, self._read_to)
        return now

    def _known_to(self, now: float) -> float:
        """Return the time in the log up to which everything is in the state, 0 if that is not known.

        If nothing came since the last cut, nothing had been written to the log when that was made: a fetch
        takes half as long as from one cut to the next. The log's clock may be behind `now`.
        """
        last, self._cut_at = self._cut_at, now
        while self._lags and not 0 <= now - self._lags[0][0] <= LAG_SECONDS:
            self._lags.popleft()
        if self.newest and now - self.newest <= LAG_SECONDS:
            self._lags.append((now, max(0.0, now - self.newest)))
        next_offset = self.state.next_offset
        if self.newest or self.leaves or next_offset < self._heard or self._fetched() >= next_offset:
            return self._read_to
        lag = min((lag for _, lag in self._lags), default=0.0)
        return max(self._read_to, (last or 0.0) - lag)

    def cutting(self, now: float) -> Steps[tuple[_Cut, list[Record]]]:
        """Cut the state in steps, while nothing is offered; return the cut and the records it commits."""
        self._in_cut = True
        self.state.read_to(self._known_to(now))
        if self.leaves:
            self.state.leaves()
        cut = yield from self.state.cutting(now, self._heard_to(now))
        self._in_cut = False
        self.newest = 0.0
        self.unsaved = 0
        labels = (self.role.name, str(self.partition))
        self._metrics.records.labels(*labels).inc(self._applier.applied)
        self._applier.applied = 0
        self._metrics.next_offset.labels(*labels).set(self.state.next_offset)
        self._metrics.sources.labels(*labels).set(self.state.source_count)
        self._metrics.forgotten.labels(self.role.name).inc(self.state.take_forgotten())
        self._left_out.add(self.state.take_left_out())
        for reason, blocks in self.state.take_without_content().items():
            self._metrics.without_content.labels(reason).inc(blocks)
        for why, pools in self.state.take_gave_up_repeats().items():
            self._metrics.gave_up_repeats.labels(why).inc(pools)
        for late, changes in self.state.take_out_of_order().items():
            self._metrics.out_of_order.labels(late).inc(changes)
        for trouble, count in self.state.troubles().items():
            self._metrics.troubled.labels(*labels, trouble).set(count)
        if not cut.dirty:
            return cut, []
        records = [
            Record(self.role.checkpoints, self.partition, key, value) for key, value in cut.checkpoints
        ]
        if self._topics:
            # Each time, and last: a reader of only the end of the checkpoints finds it there.
            records.append(Record(self.role.checkpoints, self.partition, TOPICS_KEY, self._topics))
        return cut, [*self.role.outputs(cut), *self._set_aside.take(), *records]


class LeftOutEvents:
    """Events that limits of a source kept out of the state: counted, and logged at a limited rate."""

    def __init__(self, metrics: WorkerMetrics) -> None:
        self._metrics = metrics
        self._limiter = LogLimiter()

    def add(self, found: Iterable[tuple[SourceName, Mapping[LimitReason, int]]]) -> None:
        """Count the events of each source, by reason."""
        for source, reasons in found:
            for reason, events in reasons.items():
                self._metrics.left_out.labels(reason).inc(events)
                if (suppressed := self._limiter.admit(reason)) is not None:
                    _log.error(
                        "a source exceeds a limit: its figures are degraded (docs/operations.md#limits)",
                        replica=source.replica,
                        dp_rank=source.dp_rank,
                        reason=reason,
                        events_left_out=events,
                        **suppressed,
                    )
