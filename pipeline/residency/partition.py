"""State of one partition of the events topic: all its sources, and what a checkpoint of them holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from pipeline.applying.state import State
from pipeline.applying.steps import Steps, at_once
from pipeline.errors import (
    CheckpointCorrupt,
    CheckpointDamaged,
    CheckpointFormatUnknown,
    damaged_if_it_fails,
    shown_key,
)
from pipeline.kafka.acceptance import events_refusal, is_misplaced
from pipeline.kafka.refusal import RecordRefused, SourceName
from pipeline.reading.numbered import Numbered, Readable, last_offset, one_by_one, said_by
from pipeline.reading.partly_plain import PartlyPlain
from pipeline.reading.plain_runs import PlainRun
from pipeline.residency.checkpoint.partition_snapshots import CheckpointRecord, PartitionSnapshots
from pipeline.residency.checkpoint.restoring import restore
from pipeline.residency.checkpoint.soundness import contradiction
from pipeline.residency.counting.pool import Pool
from pipeline.residency.pools import NewPool
from pipeline.residency.sharding.residency_records import ResidencyRecords
from pipeline.residency.silence import Silence, SourceKey
from pipeline.residency.source import SourceResidency, new_head
from schemas.checkpoints import (
    FORMAT,
    HEAD,
    META_KEY,
    CheckpointFormat,
    PartitionMeta,
    slot_key,
)
from schemas.events import EventsRecord
from schemas.reasons import LimitReason, SetAsideReason, WithoutContent
from schemas.rows import Row
from schemas.settings import Worker

SAYS_SECONDS = 0.75
"""In the log's time, between two records of a partition in which nothing happens: those who wait for it wait
so much longer, and each costs a record a shard. Less than from one cut to the next, so that each says it, but
where cuts are made oftener."""

_encode = msgspec.msgpack.Encoder().encode
_decode_format = msgspec.msgpack.Decoder(CheckpointFormat).decode
_decode_meta = msgspec.msgpack.Decoder(PartitionMeta).decode
_decode_key = msgspec.msgpack.Decoder(tuple[str, int, str | int]).decode


@dataclass(frozen=True)
class Cut:
    """One consistent checkpoint: everything that follows from the records before `next_offset`."""

    next_offset: int
    dirty: bool
    """False when there is nothing to commit: no rows of its own, and no new offset."""
    rows: list[Row] = field(default_factory=list)
    checkpoints: list[CheckpointRecord] = field(default_factory=list)
    """Records for the checkpoint topic, same partition number."""
    residency: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    """(shard, key, value) for the residency topic."""


class PartitionState(State[Readable, Cut]):
    """Applies events records in offset order and cuts checkpoints.

    Reads no clock and does no IO: `now` is given, and the same records give the same rows however often
    the process was restarted between them.
    """

    def __init__(
        self, partition: int, settings: Worker, *, shards: int, partitions: int | None = None
    ) -> None:
        """`partitions` are those of the events topic; None where this state has all records of a log."""
        self._partitions = partitions
        self.partition = partition
        self.next_offset = 0
        self.applying = 0
        self.sources: dict[SourceKey, SourceResidency] = {}
        self._settings = settings
        self._shards = shards
        self._snapshots = PartitionSnapshots()
        self._silence = Silence(settings.forget_seconds)
        self._forgotten: list[SourceResidency] = []
        """Since the last cut; their last rows and changes are due."""
        self._count_forgotten = 0
        self._left_out: list[tuple[SourceName, Counter[LimitReason]]] = []
        """Of forgotten sources."""
        self._saved_offset = 0
        self._announced = 0
        """Another state has committed everything before this offset."""
        self._read_to = 0.0
        """Time in the log up to which the partition is read."""
        self._said = 0.0
        """The same, as the last cut that was committed said."""

    def announced(self, offset: int) -> None:
        """Commit nothing before this offset: another state has, whose checkpoints are lost.

        What was said of residency until then is not said again; rows are written again and are the same.
        """
        self._announced = offset

    def read_to(self, time: float) -> None:
        """The partition is read up to this time in the log."""
        self._read_to = max(self._read_to, time)

    def refusal(self, record: Readable) -> SetAsideReason | None:
        """Return why the record must be set aside, None if `apply` may have it; changes nothing."""
        if self._partitions is not None and is_misplaced(said_by(record), self.partition, self._partitions):
            return "wrong_partition"
        # Notices can be refused, and what compiled code read has none.
        return events_refusal(record) if isinstance(record, EventsRecord) else None

    def apply(self, offset: int, record: Readable) -> None:
        """Apply the record at `offset`, which `refusal` has nothing against."""
        key = _key_of(record)
        for silent in self._silence.heard(key, _received(record)):
            self._forget(silent, offset)
        self._apply(self._source(key), record, offset)
        self._advance(offset)

    def apply_all(self, records: Sequence[Numbered]) -> None:
        """Apply records as `apply` does one after the other; there is one at least.

        They are in order of their first offsets, those of a source in the order of the log. Source by source
        they are applied, since none depends on another one, unless one may be forgotten between them.
        """
        keys = [_key_of(record) for _, record in records]
        if self.next_offset < self._announced or not self._all_heard(keys, records):
            for self.applying, record in one_by_one(records):
                self.apply(self.applying, record)
            return
        of_source: dict[SourceKey, list[Numbered]] = {}
        for key, numbered in zip(keys, records, strict=True):
            of_source.setdefault(key, []).append(numbered)
        for key, its_records in of_source.items():
            source = self._source(key)
            for self.applying, record in its_records:
                self._apply(source, record, self.applying)
        self._advance(max(last_offset(numbered) for numbered in records))

    def _all_heard(self, keys: Sequence[SourceKey], records: Sequence[Numbered]) -> bool:
        """Note that the sources were heard; return False, and note nothing, if one may be forgotten."""
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        counts, offsets, received = [], [], []
        for offset, record in records:
            if isinstance(record, PlainRun):
                counts.append(len(record.records))
                offsets.append(record.offsets)
                received.append(record.rows["received_at"])
            else:
                counts.append(1)
                offsets.append(np.array([offset]))
                received.append(np.array([_received(record)]))
        order = np.argsort(np.concatenate(offsets), kind="stable")
        sources = np.repeat(np.array([numbers[key] for key in keys], np.int64), counts)
        return self._silence.all_heard([*numbers], sources[order], np.concatenate(received)[order])

    def _apply(self, source: SourceResidency, record: Readable, offset: int) -> None:
        for part in record.parts if isinstance(record, PartlyPlain) else (record,):
            if isinstance(part, PlainRun):
                source.apply_run(part)
            else:
                source.apply(part, offset)

    def _source(self, key: SourceKey) -> SourceResidency:
        """Return the source that a record is of, a new one if it was not heard before."""
        source = self.sources.get(key)
        if source is None:
            source = self.sources[key] = SourceResidency(new_head(*key), self._settings, self._counting(key))
            source.head.silence = self._silence.state_of(key)
            self._snapshots.add(key, source)
        return source

    @property
    def source_count(self) -> int:
        return len(self.sources)

    def _forget(self, key: SourceKey, offset: int) -> None:
        source = self.sources.pop(key)
        source.forgotten(offset)
        self._forgotten.append(source)
        self._count_forgotten += 1
        if source.left_out:
            self._left_out.append((SourceName(*key), source.left_out))
        self._snapshots.forget(key)

    def take_forgotten(self) -> int:
        """Return how many sources were forgotten since the last call."""
        count, self._count_forgotten = self._count_forgotten, 0
        return count

    def set_aside(self, offset: int, refused: RecordRefused) -> None:
        """Leave out the record at `offset`: the sources it names, if known, lack what it said."""
        for name, source in self.sources.items():
            if refused.names(*name):
                source.record_set_aside(offset)
        self._advance(offset)

    def skip_removed(self, beginning: int) -> None:
        """Go on at `beginning`: the records before it that were not applied are gone.

        Whose they were nobody knows, and no batch may ever come that shows a gap. So every source may lack
        something from here on.
        """
        for source in self.sources.values():
            source.records_removed(beginning - 1)
        self._advance(beginning - 1)

    def troubles(self) -> dict[str, int]:
        """Return how many sources are partial, degraded, disconnected, drifting or limited.

        Leaves out sources that are no longer read. A source without a first batch counts neither as partial
        nor as degraded.
        """
        read = [source for source in self.sources.values() if source.head.closed_reason in ("", "silent")]
        trusts = [
            source.overall_trust().trust for source in read if source.opened and not source.head.closed_at
        ]
        return {
            "partial": trusts.count("partial"),
            "degraded": trusts.count("degraded"),
            "disconnected": sum(source.head.connectivity.disconnected_from is not None for source in read),
            "drifting": sum(source.drifts for source in read),
            "limited": sum(source.head.limited for source in read),
        }

    def take_left_out(self) -> list[tuple[SourceName, Counter[LimitReason]]]:
        """Return how many events of which source limits kept out since the last call."""
        found, self._left_out = self._left_out, []
        for name, source in self.sources.items():
            if source.left_out:
                found.append((SourceName(*name), source.left_out))
                source.left_out = Counter()
        return found

    def take_without_content(self) -> Counter[WithoutContent]:
        """Return how many blocks got no content hash, and why, since the last call."""
        found: Counter[WithoutContent] = Counter()
        for source in self.sources.values():
            if source.pools.without_content:
                found += source.pools.take_without_content()
        return found

    def cut(self, now: float) -> Cut:
        """Return what must be saved; from here on it counts as saved.

        Rows go to the tables first; then checkpoints, residency and offset commit together. If that
        fails, this state must be dropped.
        """
        return at_once(self.cutting(now, now))

    def cutting(self, now: float, heard_to: float) -> Steps[Cut]:
        """Do the same in steps, source by source. Nothing may be applied between the first and the last.

        A source that says nothing is carried forward to `heard_to`.
        """
        rows: list[Row] = []
        residency = ResidencyRecords(
            self.partition, self.next_offset, self._shards, partitions=self._partitions or 0
        )
        committed_before = self.next_offset < self._announced
        forgotten, self._forgotten = self._forgotten, []
        for source in forgotten:
            rows += source.windows.take_all()
            residency.take(source)
        # All that is due of a source is taken at once, while what it consists of is in the processor's cache.
        for key, source in self.sources.items():
            source_rows = source.windows.take(heard_to)
            rows += source_rows
            if committed_before:
                source.take_changes()
            elif source.unsaved or source_rows:
                source.unsaved = False
                self._snapshots.take(key)
                residency.take(source)
            yield
        if committed_before:
            return Cut(self.next_offset, dirty=False, rows=rows)
        checkpoints = yield from self._snapshots.cutting()
        says = self._read_to if self._partitions else 0.0
        if not checkpoints and self.next_offset == self._saved_offset:
            if says < self._said + SAYS_SECONDS:
                return Cut(self.next_offset, dirty=False)
            self._said = says
            return Cut(self.next_offset, dirty=True, residency=residency.finish(says))
        self._said = says
        self._saved_offset = self.next_offset
        meta = PartitionMeta(self.next_offset, FORMAT, self._silence.clock)
        checkpoints.append((META_KEY, _encode(meta)))
        return Cut(
            self.next_offset,
            dirty=True,
            rows=rows,
            checkpoints=checkpoints,
            residency=residency.finish(says),
        )

    def _advance(self, offset: int) -> None:
        self.next_offset = offset + 1
        if self.next_offset == self._announced:
            for source in [*self._forgotten, *self.sources.values()]:
                source.take_changes()

    @classmethod
    def restore(
        cls,
        partition: int,
        settings: Worker,
        *,
        shards: int,
        latest: Mapping[bytes, bytes],
        partitions: int | None = None,
    ) -> PartitionState:
        """Return the state that the last checkpoint saved; a new one when there is none.

        `latest` holds the last committed value of every key of the checkpoint partition. Raises
        CheckpointFormatUnknown, CheckpointCorrupt when records are missing, and CheckpointDamaged when they
        do not fit together.
        """
        state = cls(partition, settings, shards=shards, partitions=partitions)
        state.load(latest)
        return state

    def load(self, latest: Mapping[bytes, bytes]) -> None:
        """Take over what the last checkpoint saved, into a state that is new. Raises what `restore` does."""
        meta = latest.get(META_KEY)
        if meta is None:
            if latest:
                raise CheckpointCorrupt("the partition", "record @meta")
            return
        with damaged_if_it_fails(META_KEY):
            found = _decode_format(meta).format
            if found != FORMAT:
                raise CheckpointFormatUnknown(found, FORMAT)
            position = _decode_meta(meta)
            self.next_offset = self._saved_offset = position.next_offset
        written: dict[SourceKey, list[str | int]] = {}
        for key in latest:
            if key != META_KEY:
                with damaged_if_it_fails(key):
                    replica, dp_rank, slot = _decode_key(key)
                    written.setdefault((replica, dp_rank), []).append(slot)
        for name, its_slots in written.items():
            key = slot_key(*name, HEAD)
            if HEAD not in its_slots:
                continue
            with damaged_if_it_fails(key):
                source, slots = restore(
                    key, latest, self._settings, self._counting(name), self._contradiction
                )
                if (source.head.replica, source.head.dp_rank) != name:
                    raise CheckpointDamaged(shown_key(key), "it is of another source")
                self.sources[name] = source
                self._snapshots.add(name, source, slots, its_slots)
        heard = {name: source.head.silence for name, source in self.sources.items()}
        self._silence = Silence(self._settings.forget_seconds, position.clock, heard)

    def _counting(self, key: SourceKey) -> NewPool:
        """Return what makes the pools of a source."""
        return Pool

    def _contradiction(self, source: SourceResidency) -> str | None:
        """Return what of a restored source contradicts the rest; None if nothing does."""
        return contradiction(source)


def _key_of(record: Readable) -> SourceKey:
    said = said_by(record)
    return said.replica, said.dp_rank


def _received(record: Readable) -> float:
    """Return when the last batch was received, 0 if there is none."""
    if isinstance(record, EventsRecord):
        return record.batches[-1].received_at if record.batches else 0.0
    return record.received_at
