"""Records of the log on their way into the index: decoded, judged and applied in order, each once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import structlog

from connectors.process.limited_log import LogLimiter
from pipeline.errors import OffsetGap, RecordFatal
from pipeline.index.following.partition import IndexedPartition
from pipeline.index.telemetry import IndexMetrics
from pipeline.kafka.acceptance import NOT_APPLICABLE
from pipeline.kafka.portions import in_portions
from pipeline.kafka.refusal import RecordRefused
from pipeline.residency.intake.partly_plain import PartlyPlain
from pipeline.residency.intake.plain_runs import PlainRun
from pipeline.worker.partition import Role
from pipeline.worker.set_aside import Offered

AT_ONCE_BYTES = 64 << 10
"""Of records applied in one go: questions wait for about a millisecond."""
AT_ONCE_RECORDS = 32

_log = structlog.get_logger(__name__)


def from_log(record: Any) -> Offered:
    """Return a consumer's record as states get it."""
    return Offered(record.offset, record.value, tuple(record.headers), record.key, record.timestamp / 1000)


def portions(records: Sequence[Offered]) -> Iterator[Sequence[Offered]]:
    """Return records in their order, as many at once as questions can wait for."""
    return in_portions(
        records,
        lambda record: len(record.value or b""),
        most_bytes=AT_ONCE_BYTES,
        most_records=AT_ONCE_RECORDS,
    )


class Applying:
    """Applies records to partitions by the rules of the replica agent."""

    def __init__(self, role: Role, metrics: IndexMetrics) -> None:
        """`role` is that of the replica agent."""
        self._role = role
        self._metrics = metrics
        self._limiter = LogLimiter()

    def apply(self, state: IndexedPartition, several: Sequence[Offered]) -> None:
        """Apply records that came together; the table shows them then. Raises OffsetGap, RecordFatal."""
        reading = self._role.read_ahead(several, together=False)
        read: dict[int, PlainRun | PartlyPlain] = {int(run.offsets[0]): run for run in reading.runs}
        read |= {several[at].offset: partly for at, partly in reading.partly}
        for offered in several:
            if offered.offset < state.next_offset:
                continue
            if offered.offset > state.next_offset:
                raise OffsetGap(self._role.topic, state.partition, state.next_offset, offered.offset)
            self._offer(state, offered, read.get(offered.offset))
        state.settle()
        self._metrics.records.inc(len(several))

    def _offer(self, state: IndexedPartition, offered: Offered, read: PlainRun | PartlyPlain | None) -> None:
        role = self._role
        try:
            record = read or role.decode(offered.value, offered.headers, offered.key)
            reason = state.refusal(record)
            if reason is not None:
                raise RecordRefused(reason, NOT_APPLICABLE, role.sources_of(record))
        except RecordRefused as refused:
            self._set_aside(state, offered, refused)
            return
        try:
            state.apply(offered.offset, read or role.bounded(record, offered.written_at))
        except Exception as error:
            raise RecordFatal(role.topic, state.partition, offered.offset) from error

    def _set_aside(self, state: IndexedPartition, offered: Offered, refused: RecordRefused) -> None:
        self._metrics.set_aside.labels(refused.reason).inc()
        if (suppressed := self._limiter.admit(refused.reason)) is not None:
            _log.error(
                "record left out: it cannot be applied",
                topic=self._role.topic,
                partition=state.partition,
                offset=offered.offset,
                reason=refused.reason,
                **suppressed,
            )
        state.set_aside(offered.offset, refused)
