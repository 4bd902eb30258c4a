"""The roles of a worker: the replica agent and the fleet agent."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import msgspec

from connectors.kafka.cloud_events import digest
from connectors.kafka.content_types import JSON
from connectors.kafka.encoding import Encoding
from connectors.kafka.topics import topic_name
from pipeline.fleet.state import Cut as FleetCut
from pipeline.fleet.state import FleetState
from pipeline.kafka.acceptance import events_source, residency_sources
from pipeline.kafka.decoding import decode_events, decode_residency
from pipeline.kafka.refusal import SourceName
from pipeline.residency.intake.numbered import Readable, said_by
from pipeline.residency.intake.reading import Reading, read
from pipeline.residency.partition import Cut, PartitionState
from pipeline.residency.windows import bounded_by_log
from pipeline.worker.checkpoint.record import Record
from pipeline.worker.partition import Role
from pipeline.worker.set_aside import Offered
from schemas.events import EventsRecord
from schemas.residency import Decisions, ResidencyRecord
from schemas.settings import Settings

_decode = msgspec.msgpack.Decoder(ResidencyRecord).decode


class _ResidencyTopic:
    """Makes records of residency in the configured format."""

    def __init__(self, settings: Settings) -> None:
        self.name = topic_name(settings.kafka, "residency")
        self._encoding = Encoding("residency", settings.kafka)

    def packed(self, shard: int, key: bytes, value: bytes) -> Record:
        """Return the record of a value in MessagePack."""
        record = _decode(value)
        if self._encoding.as_json:
            value = self._encoding.value(record)
        return self._record(shard, key, value, f"partition {key.decode()}", _time_of(record))

    def decided(self, shard: int, said: Decisions) -> Record:
        """Return the record that tells a shard what another one decided."""
        value = self._encoding.value(ResidencyRecord(said.shard, said.shard, 0, [], decisions=said))
        source = f"shard {said.shard}"
        return self._record(shard, source.encode(), value, source, said.decided_to)

    def _record(self, shard: int, key: bytes, value: bytes, source: str, at: float) -> Record:
        headers = self._encoding.headers(source.replace(" ", "/"), digest(value), at)
        return Record(self.name, shard, key, value, compressed=True, headers=headers)


def _time_of(record: ResidencyRecord) -> float:
    """Return up to when its partition is read, or its last change where another record says that."""
    if record.read_to or not record.sources:
        return record.read_to
    last = (changes.times[-8:] for source in record.sources for changes in source.changes if changes.times)
    return float(max((at for times in last for (at,) in struct.iter_unpack("<d", times)), default=0.0))


def replica_agent(settings: Settings, *, shards: int, partitions: int | None = None) -> Role:
    """Return the agent that keeps residency per source.

    `shards` is the partition count of its output, `partitions` that of its input, if records are told apart
    by it.
    """
    residency = _ResidencyTopic(settings)

    def restore(partition: int, latest: Mapping[bytes, bytes]) -> PartitionState:
        return PartitionState.restore(
            partition, settings.worker, shards=shards, latest=latest, partitions=partitions
        )

    def read_ahead(offered: Sequence[Offered], *, together: bool) -> Reading:
        is_json = ("content-type", JSON)
        return read(
            [None if is_json in one.headers else one.value for one in offered],
            settings.worker,
            offsets=[one.offset for one in offered],
            written=[one.written_at for one in offered],
            together=together,
        )

    def bounded(record: EventsRecord, written_at: float) -> EventsRecord:
        return bounded_by_log(record, written_at, ahead=settings.worker.max_clock_ahead_seconds)

    def sources_of(record: Readable) -> tuple[SourceName, ...]:
        return events_source(said_by(record))

    def outputs(cut: Cut) -> list[Record]:
        return [residency.packed(shard, key, value) for shard, key, value in cut.residency]

    events = topic_name(settings.kafka, "events")
    return Role(
        name="replica",
        topic=events,
        saved_topics=frozenset({events, residency.name}),
        checkpoints=topic_name(settings.kafka, "checkpoints_replica"),
        contiguous=True,
        committed=False,
        unsaved_bytes=64 << 20,
        chunk_bytes=1 << 20,
        set_aside=topic_name(settings.kafka, "set_aside"),
        decode=decode_events,
        sources_of=sources_of,
        restore=restore,
        outputs=outputs,
        read_ahead=read_ahead,
        bounded=bounded,
        read_to=PartitionState.read_to,
        continued=PartitionState.announced,
        troubles=PartitionState.troubles,
        left_out=PartitionState.take_left_out,
        without_content=PartitionState.take_without_content,
    )


def fleet_agent(settings: Settings, *, shards: int = 1) -> Role:
    """Return the agent that follows who holds and who lost which block, per shard of the hash space.

    `shards` is the partition count of its input.
    """
    residency = _ResidencyTopic(settings)

    def restore(partition: int, latest: Mapping[bytes, bytes]) -> FleetState:
        return FleetState.restore(
            partition,
            settings.fleet,
            carry_seconds=settings.worker.idle_carry_seconds,
            shards=shards,
            forget_seconds=settings.worker.forget_seconds,
            latest=latest,
        )

    def outputs(cut: FleetCut) -> list[Record]:
        return [
            residency.decided(shard, said)
            for said in cut.decisions
            for shard in range(shards)
            if shard != said.shard
        ]

    return Role(
        name="fleet",
        topic=residency.name,
        saved_topics=frozenset({residency.name}),
        checkpoints=topic_name(settings.kafka, "checkpoints_fleet"),
        # The markers of the replica agent's transactions take offsets.
        contiguous=False,
        committed=True,
        # It keeps no changes, but what follows from them.
        unsaved_bytes=512 << 20,
        # Few large records: more of them at once would save nothing.
        chunk_bytes=256 << 10,
        set_aside=topic_name(settings.kafka, "set_aside"),
        decode=decode_residency,
        sources_of=residency_sources,
        restore=restore,
        outputs=outputs,
        out_of_order=FleetState.take_out_of_order,
    )
