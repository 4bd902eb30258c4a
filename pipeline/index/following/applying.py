"""Applies records of the log to the table, in portions small enough that questions need not wait long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.applying.applier import Applier
from pipeline.applying.offered import Offered
from pipeline.applying.reader import Reader
from pipeline.applying.set_aside import SetAside
from pipeline.index.following.partition import IndexedPartition
from pipeline.index.telemetry import IndexMetrics
from pipeline.kafka.portions import in_portions
from pipeline.reading.numbered import Readable

AT_ONCE_BYTES = 64 << 10
"""Size of the records applied in one go: questions wait for about a millisecond."""
AT_ONCE_RECORDS = 32


def portions(records: Sequence[Offered]) -> Iterator[Sequence[Offered]]:
    """Return the records in order, split into portions small enough that questions need not wait long."""
    return in_portions(
        records,
        lambda record: len(record.value or b""),
        most_bytes=AT_ONCE_BYTES,
        most_records=AT_ONCE_RECORDS,
    )


class Applying:
    """Applies the records of one partition and makes them visible in the table."""

    def __init__(self, reader: Reader[Readable], state: IndexedPartition, metrics: IndexMetrics) -> None:
        aside = SetAside(reader.topic, state.partition, lambda reason: metrics.set_aside.labels(reason).inc())
        self.state = state
        self._applier = Applier(reader, state, state.partition, set_aside=aside.add)
        self._metrics = metrics

    def apply(self, several: Sequence[Offered]) -> None:
        """Apply records that arrived together and make them visible. Raises OffsetGap, RecordFatal."""
        self._applier.offer(several)
        self.state.settle()
        self._metrics.records.inc(self._applier.applied)
        self._applier.applied = 0
