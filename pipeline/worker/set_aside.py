"""Records that cannot be applied: counted, logged, and kept for the topic of records set aside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import structlog

from connectors.kafka.cloud_events import CloudEvents
from connectors.kafka.content_types import MSGPACK
from connectors.process.limited_log import LogLimiter
from pipeline.kafka.refusal import RecordRefused
from pipeline.worker.checkpoint.record import Record
from pipeline.worker.telemetry import WorkerMetrics
from schemas.set_aside import KEPT_BYTES, SetAsideRecord

PARTITION = 0
"""The only one of the topic of records set aside."""
BYTES_OF_CHECKPOINT = 4 << 20
"""Of the values of records set aside, in one checkpoint: beyond them, records come without their bytes."""
_DETAIL_CHARACTERS = 200

_log = structlog.get_logger(__name__)
_encode = msgspec.msgpack.Encoder().encode


class Offered(NamedTuple):
    """A record of the log as it came."""

    offset: int
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()
    key: bytes | None = None
    written_at: float = 0.0
    """Seconds since the epoch, as the broker has it; 0 or less where it does not know."""


class SetAside:
    """What one partition has set aside since its last checkpoint."""

    def __init__(self, agent: str, topic: str, partition: int, into: str, metrics: WorkerMetrics) -> None:
        """`into`: the topic of records set aside."""
        self._agent = agent
        self._topic = topic
        self._partition = partition
        self._into = into
        self._metrics = metrics
        self._events = CloudEvents("set_aside", MSGPACK)
        self._limiter = LogLimiter()
        self._waiting: list[Record] = []
        self._bytes = 0

    def add(self, offered: Offered, refused: RecordRefused) -> None:
        """Set a record aside."""
        self._metrics.set_aside.labels(self._agent, refused.reason).inc()
        if (suppressed := self._limiter.admit(refused.reason)) is not None:
            _log.error(
                "record set aside: it cannot be applied",
                topic=self._topic,
                partition=self._partition,
                offset=offered.offset,
                reason=refused.reason,
                detail=refused.detail[:_DETAIL_CHARACTERS],
                sources=[
                    f"{replica[:64]}/{'*' if rank is None else rank}" for replica, rank in refused.sources[:3]
                ],
                **suppressed,
            )
        record = _encode(self._described(offered, refused))
        place = f"{self._topic}/{self._partition}"
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
            topic=self._topic,
            partition=self._partition,
            offset=offered.offset,
            reason=refused.reason,
            detail=refused.detail[:_DETAIL_CHARACTERS],
            written_at=offered.written_at,
            length=len(value),
            value=kept,
            replica=replica,
            dp_rank=dp_rank,
            sources=len(refused.sources),
        )
