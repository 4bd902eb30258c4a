"""Records that cannot be applied, kept for the topic of records set aside."""

from __future__ import annotations

import msgspec

from connectors.kafka.cloud_events import CloudEvents
from connectors.kafka.encoding import MSGPACK
from pipeline.applying.offered import Offered
from pipeline.applying.set_aside import DETAIL_CHARACTERS, SetAside
from pipeline.kafka.refusal import RecordRefused
from pipeline.worker.checkpoint.record import Record
from pipeline.worker.telemetry import WorkerMetrics
from schemas.set_aside import KEPT_BYTES, SetAsideRecord

PARTITION = 0
"""The topic of records set aside has only this one."""
BYTES_OF_CHECKPOINT = 4 << 20
"""Bytes of values kept per checkpoint: records set aside beyond them come without their values."""

_encode = msgspec.msgpack.Encoder().encode


class KeptAside(SetAside):
    """Keeps the records that one partition has set aside since its last checkpoint."""

    def __init__(self, agent: str, topic: str, partition: int, into: str, metrics: WorkerMetrics) -> None:
        """`into`: the topic of records set aside."""
        super().__init__(topic, partition, lambda reason: metrics.set_aside.labels(agent, reason).inc())
        self._into = into
        self._events = CloudEvents("set_aside", MSGPACK)
        self._waiting: list[Record] = []
        self._bytes = 0

    def add(self, offered: Offered, refused: RecordRefused) -> None:
        """Set a record aside."""
        super().add(offered, refused)
        record = _encode(self._described(offered, refused))
        place = f"{self.topic}/{self.partition}"
        headers = self._events.headers(place, f"{place}/{offered.offset}", max(offered.written_at, 0.0))
        key = (offered.key or b"")[:KEPT_BYTES]
        self._waiting.append(Record(self._into, PARTITION, key, record, compressed=True, headers=headers))

    def take(self) -> list[Record]:
        """Return the records that the next transaction has to hold; they count as written."""
        taken, self._waiting, self._bytes = self._waiting, [], 0
        return taken

    def _described(self, offered: Offered, refused: RecordRefused) -> SetAsideRecord:
        value = offered.value or b""
        kept = value[:KEPT_BYTES] if self._bytes < BYTES_OF_CHECKPOINT else b""
        self._bytes += len(kept)
        replica, dp_rank = refused.sources[0] if refused.sources else (None, None)
        return SetAsideRecord(
            topic=self.topic,
            partition=self.partition,
            offset=offered.offset,
            reason=refused.reason,
            detail=refused.detail[:DETAIL_CHARACTERS],
            written_at=offered.written_at,
            length=len(value),
            value=kept,
            replica=replica,
            dp_rank=dp_rank,
            sources=len(refused.sources),
        )
