"""Folds the newest records of the topics into what they say of each source. No IO."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import msgspec

from connectors.kafka.encoding import UNDECODABLE
from pipeline.doctor.facts import LogFacts, PositionFacts, SetAsideFacts, SourceId
from pipeline.kafka.decoding import outline_of
from schemas.checkpoints import TOPICS_KEY, StateTopics
from schemas.positions import PositionRecord
from schemas.set_aside import SetAsideRecord

SETTLE_SECONDS = 20.0
"""The tables show a record by then: a checkpoint takes seconds, also when ClickHouse is slow."""

_set_aside = msgspec.msgpack.Decoder(SetAsideRecord).decode
_topics = msgspec.msgpack.Decoder(StateTopics).decode
_position = msgspec.msgpack.Decoder(PositionRecord).decode


class LogReader:
    """Takes partitions in any order, and the records of each in their own order; times are seconds."""

    def __init__(self, now: float) -> None:
        self._settled_before = now - SETTLE_SECONDS
        self.log: dict[SourceId, LogFacts] = {}
        self.positions: dict[SourceId, PositionFacts] = {}
        self.set_aside: dict[str, SetAsideFacts] = {}
        """By place: a rebuild of the state makes agents write the same one twice."""
        self.saved_at: dict[str, dict[int, float]] = {}
        """When the newest record of a checkpoint topic was written, by partition."""
        self.saved_topics: dict[str, str] = {}
        """Ids of the topics that checkpoints are of, by name."""
        self.newest_record_at: float | None = None
        """Of the events topic."""

    def event(self, value: bytes | None, headers: Iterable[tuple[str, bytes]], at: float) -> None:
        """Take a record of the events topic; what cannot be decoded is the worker's to count."""
        self.newest_record_at = max(at, self.newest_record_at or 0.0)
        head = outline_of(value, headers)
        if head is None:
            return
        source = (head.replica, head.dp_rank)
        before = self.log.get(source)
        if before is not None and head.incarnation < before.incarnation:
            return
        last_seq, settled = head.last_seq, before.settled if before else None
        if before is not None and before.incarnation == head.incarnation:
            last_seq = before.last_seq if last_seq is None else max(last_seq, before.last_seq or 0)
        if at <= self._settled_before and last_seq is not None:
            settled = (head.incarnation, last_seq)
        self.log[source] = LogFacts(head.incarnation, last_seq, at, settled)

    def position(self, value: bytes | None, at: float) -> None:
        """Take a record of the positions topic."""
        try:
            record = _position(value or b"")
        except UNDECODABLE:
            return
        source = (record.replica, record.dp_rank)
        before = self.positions.get(source)
        settled = before.settled if before else None
        if at <= self._settled_before and record.seq is not None:
            settled = (record.incarnation, record.seq)
        self.positions[source] = PositionFacts(record.incarnation, record.seq, record.partition, at, settled)

    def set_aside_record(self, value: bytes | None) -> None:
        """Take a record of the topic of records set aside."""
        try:
            record = _set_aside(value or b"")
        except UNDECODABLE:
            return
        rank = "" if record.dp_rank is None else f"/{record.dp_rank}"
        source = "" if record.replica is None else f"{record.replica}{rank}"
        place = f"{record.topic}[{record.partition}] offset {record.offset}"
        self.set_aside[place] = SetAsideFacts(place, record.reason, source)

    def checkpoint(
        self, topic: str, partition: int, at: float, key: bytes | None = None, value: bytes | None = None
    ) -> None:
        """Take a record of a checkpoint topic."""
        saved = self.saved_at.setdefault(topic, {})
        saved[partition] = max(at, saved.get(partition, 0.0))
        if key == TOPICS_KEY and value is not None:
            with contextlib.suppress(*UNDECODABLE):
                self.saved_topics |= _topics(value).ids
