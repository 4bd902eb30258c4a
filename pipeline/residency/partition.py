"""State of one partition of the events topic: all its sources, and what a checkpoint of them holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from pipeline.applying.state import State
from pipeline.applying.steps import Steps, at_once
from pipeline.errors import CheckpointCorrupt, CheckpointDamaged, damaged_if_it_fails, shown_key
from pipeline.kafka.acceptance import events_refusal, is_misplaced
from pipeline.kafka.refusal import RecordRefused, SourceName
from pipeline.reading.numbered import Numbered, Readable, last_offset, one_by_one, said_by
from pipeline.reading.partly_plain import PartlyPlain
from pipeline.reading.plain_runs import PlainRun
from pipeline.residency.checkpoint.committed import AlreadyCommitted
from pipeline.residency.checkpoint.partition_bases import PartitionBases
from pipeline.residency.checkpoint.position import begins, read, slots_of_sources
from pipeline.residency.checkpoint.restoring import restore
from pipeline.residency.checkpoint.soundness import contradiction, contradiction_of_entries
from pipeline.residency.counting.block_table import in_table
from pipeline.residency.counting.copies import NewCopies
from pipeline.residency.cut import Cut
from pipeline.residency.sharding.residency_records import ResidencyRecords
from pipeline.residency.silence import Silence, SourceKey, in_order, received_at
from pipeline.residency.source import SourceResidency
from pipeline.residency.stream.session import new_head
from pipeline.residency.troubles import Drained, troubles
from schemas.checkpoints import (
    BASE,
    FORMAT,
    META_KEY,
    NO_BASE,
    Forgotten,
    PartitionMeta,
    SourceAtCut,
    slot_key,
)
from schemas.events import EventsRecord
from schemas.reasons import GaveUpRepeats, LimitReason, SetAsideReason, WithoutContent
from schemas.rows import Row
from schemas.settings import Worker

REPORT_SECONDS = 0.75
"""Log time between two reports of how far an idle partition is read. Readers that wait for the partition wait
this much longer, and each report costs a record per shard. Less than the time from one cut to the next, so
that every cut reports, unless cuts are more frequent."""

_encode = msgspec.msgpack.Encoder().encode


class PartitionState(State[Readable, Cut]):
    """Applies events records in offset order and cuts checkpoints.

    Reads no clock and does no IO: `now` is given, and the same records give the same rows however often
    the process was restarted between them. A restored state begins with records that some sources have
    and others lack: up to the offset that its checkpoint committed, it only applies them to the latter.
    """

    def __init__(
        self, partition: int, settings: Worker, *, shards: int, partitions: int | None = None
    ) -> None:
        """`partitions`: how many the events topic has; None where this state gets all records of a log."""
        self._partitions = partitions
        self.partition = partition
        self.next_offset = 0
        self.applying = 0
        self.sources: dict[SourceKey, SourceResidency] = {}
        self._settings = settings
        self._shards = shards
        self._bases = PartitionBases()
        self._silence = Silence(settings.forget_seconds)
        self._forgotten: list[SourceResidency] = []
        """Sources forgotten since the last cut; their last rows and changes are due."""
        self._count_forgotten = 0
        self._left_out: list[tuple[SourceName, Counter[LimitReason]]] = []
        """What limits kept out of forgotten sources."""
        self._without_content = Drained[WithoutContent](lambda pools: pools.shared.without_content)
        self._gave_up_repeats = Drained[GaveUpRepeats](lambda pools: pools.shared.gave_up_repeats)
        self._saved_offset = 0
        self._committed = AlreadyCommitted()
        self._gone: list[Forgotten] = []
        """Sources forgotten after the offset at which a worker that continues from the checkpoint begins."""
        self._leaves = False
        self._read_to = 0.0
        """Log time up to which the partition is read."""
        self._reported_to = 0.0
        """The same, as the last cut reported it."""

    def note_committed(self, offset: int) -> None:
        """Commit nothing before this offset: another state has, but its checkpoints are lost.

        Changes of residency before it are not published again; rows are written again, equal.
        """
        self._committed = AlreadyCommitted(offset)

    @property
    def required_end(self) -> int:
        """Return how far the log must reach: this state, or its checkpoint, rests on all records before."""
        return self.next_offset if self._committed.meta is None else self._committed.end

    def leaves(self) -> None:
        """Note that another worker continues from the next cut."""
        self._leaves = True

    def read_to(self, time: float) -> None:
        """Note that the partition is read up to this log time."""
        self._read_to = max(self._read_to, time)

    def refusal(self, record: Readable) -> SetAsideReason | None:
        """Return why the record must be set aside, None if `apply` may get it; changes nothing."""
        if self._partitions is not None and is_misplaced(said_by(record), self.partition, self._partitions):
            return "wrong_partition"
        # Only notices can be refused, and what compiled code reads has none.
        return events_refusal(record) if isinstance(record, EventsRecord) else None

    def apply(self, offset: int, record: Readable) -> None:
        """Apply the record at `offset`, which `refusal` accepts; for callers that have one at a time."""
        if self._committed.meta is not None:
            self.apply_all([(offset, record)])
            return
        key = _key_of(record)
        for silent in self._silence.heard(key, received_at(record)):
            self._forget(silent, offset)
        self._apply(self._source(key), record, offset)
        self._bases.changed(key, offset)
        self._advance(offset)

    def apply_all(self, records: Sequence[Numbered]) -> None:
        """Apply records, at least one, with the same result as `apply` one after the other.

        They come in order of their first offsets, those of a source in the order of the log. They are applied
        source by source, as no source depends on another one, unless one may be forgotten in between.
        """
        if self._committed.meta is not None:
            records = self._applied_again(records)
            if not records:
                return
        keys = [_key_of(record) for _, record in records]
        if self.next_offset < self._committed.end or not self._silence.all_heard(*in_order(keys, records)):
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
                self._bases.changed(key, self.applying)
        self._advance(max(last_offset(numbered) for numbered in records))

    def _applied_again(self, records: Sequence[Numbered]) -> Sequence[Numbered]:
        """Apply what was committed before to the sources that lack it; return what was not committed."""
        committed = self._committed
        for numbered in records:
            key = _key_of(numbered[1])
            again = committed.again(numbered, key)
            if again is not None:
                self.applying, record = again
                self._apply(self._source(key), record, self.applying)
                self._bases.changed(key, self.applying)
        self._advance(min(max(last_offset(numbered) for numbered in records), committed.end - 1))
        return committed.later(records)

    def _apply(self, source: SourceResidency, record: Readable, offset: int) -> None:
        for part in record.parts if isinstance(record, PartlyPlain) else (record,):
            if isinstance(part, PlainRun):
                source.apply_run(part)
            else:
                source.apply(part, offset)

    def _source(self, key: SourceKey) -> SourceResidency:
        """Return the source with this key, a new one if it was not heard before."""
        source = self.sources.get(key)
        if source is None:
            source = self.sources[key] = SourceResidency(new_head(*key), self._settings, self._counting(key))
            self._bases.add(key, source)
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
        self._bases.forget(key)
        self._gone.append(Forgotten(*key, offset))

    def take_forgotten(self) -> int:
        """Return how many sources were forgotten since the last call."""
        count, self._count_forgotten = self._count_forgotten, 0
        return count

    def set_aside(self, offset: int, refused: RecordRefused) -> None:
        """Leave out the record at `offset`: the sources it names, if known, lack what it said."""
        for name, source in self.sources.items():
            if refused.names(*name) and self._committed.included(name) <= offset:
                source.record_set_aside(offset)
                self._bases.changed(name, offset)
        self._advance(offset)

    def skip_removed(self, beginning: int) -> None:
        """Continue at `beginning`: the records before it that were not applied are gone.

        Nobody knows their sources, and perhaps no later batch shows a gap. So every source may lack something
        from here on, unless the records were committed.
        """
        if self._committed.meta is not None:
            lacking, reached = self._committed.removed(self.sources, beginning)
            for name in lacking:
                self._lacks_removed(name, reached - 1)
            self._advance(reached - 1)
        if self.next_offset < beginning:
            for name in self.sources:
                self._lacks_removed(name, beginning - 1)
            self._advance(beginning - 1)

    def _lacks_removed(self, name: SourceKey, offset: int) -> None:
        self.sources[name].records_removed(offset)
        self._bases.changed(name, offset)

    def troubles(self) -> dict[str, int]:
        """Return how many sources are partial, degraded, disconnected, drifting or limited.

        Leaves out sources that are no longer read; one without a first batch is neither partial nor degraded.
        """
        return troubles(self.sources.values())

    def take_left_out(self) -> list[tuple[SourceName, Counter[LimitReason]]]:
        """Return for each source how many events limits kept out since the last call."""
        found, self._left_out = self._left_out, []
        for name, source in self.sources.items():
            if source.left_out:
                found.append((SourceName(*name), source.left_out))
                source.left_out = Counter()
        return found

    def take_without_content(self) -> Counter[WithoutContent]:
        """Return how many blocks got no content hash, and why, since the last call."""
        return self._without_content.take(self.sources.values())

    def take_gave_up_repeats(self) -> Counter[GaveUpRepeats]:
        """Return how many pools forgot what was announced again, and why, since the last call."""
        return self._gave_up_repeats.take(self.sources.values())

    def cut(self, now: float) -> Cut:
        """Return what must be saved; from here on it counts as saved.

        Rows go to the tables first; then checkpoints, residency and offset commit together. If that
        fails, this state must be dropped.
        """
        return at_once(self.cutting(now, now))

    def cutting(self, now: float, heard_to: float) -> Steps[Cut]:
        """Cut in steps, source by source. Nothing may be applied between the first and the last.

        A silent source is carried forward to `heard_to`.
        """
        rows: list[Row] = []
        residency = ResidencyRecords(
            self.partition, self.next_offset, self._shards, partitions=self._partitions or 0
        )
        committed_before = self.next_offset < self._committed.end
        forgotten, self._forgotten = self._forgotten, []
        for source in forgotten:
            rows += source.windows.take_all()
            residency.add(source)
        self._without_content.add(forgotten)
        self._gave_up_repeats.add(forgotten)
        # All that is due of a source is taken at once, while its state is in the processor's cache.
        for key, source in self.sources.items():
            source_rows = source.windows.take(heard_to)
            if not self._committed.rows_stay(key):
                rows += source_rows
            if committed_before:
                source.take_changes()
            elif source.unsaved or source_rows:
                source.unsaved = False
                residency.add(source)
            yield
        if committed_before:
            return Cut(self.next_offset, dirty=False, rows=rows)
        last, self._leaves = self._leaves, False
        checkpoints = yield from self._bases.cutting(now, self.next_offset, last=last)
        reported = self._read_to if self._partitions else 0.0
        unchanged = not checkpoints and not rows and self.next_offset == self._saved_offset
        if unchanged and reported < self._reported_to + REPORT_SECONDS:
            return Cut(self.next_offset, dirty=False)
        self._reported_to = reported
        if not unchanged:
            self._saved_offset = self.next_offset
            checkpoints.append((META_KEY, _encode(self._meta())))
        return Cut(
            self.next_offset,
            dirty=True,
            rows=rows,
            checkpoints=checkpoints,
            residency=residency.finish(reported),
        )

    def _meta(self) -> PartitionMeta:
        """Return what a checkpoint records about the partition."""
        sources = []
        for key, source in self.sources.items():
            heard = self._silence.state_of(key)
            carried = source.head.carried_to, source.head.written_to
            standing = self._bases.standing(key)
            sources.append(SourceAtCut(*key, heard.clock, heard.received_at, *carried, *standing))
        meta = PartitionMeta(self.next_offset, FORMAT, self._silence.clock, sources)
        read_from = begins(meta)
        meta.forgotten = self._gone = [one for one in self._gone if one.offset > read_from]
        return meta

    def _advance(self, offset: int) -> None:
        before, self.next_offset = self.next_offset, offset + 1
        if before < self._committed.end <= self.next_offset:
            self._is_committed()

    def _is_committed(self) -> None:
        """Begin to commit, as everything that another state has committed is applied now."""
        for source in [*self._forgotten, *self.sources.values()]:
            source.take_changes()
        committed, self._committed = self._committed, AlreadyCommitted(self._committed.end)
        self._silence = committed.applied(self.sources, self._settings.forget_seconds) or self._silence

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
        """Return the state restored from the bases of the last checkpoint; a new one when there is none.

        It continues at the first record that some base lacks. `latest` holds the last committed value of
        every key of the checkpoint partition. Raises CheckpointFormatUnknown, CheckpointCorrupt when records
        are missing, and CheckpointDamaged when they do not fit together.
        """
        state = cls(partition, settings, shards=shards, partitions=partitions)
        state.load(latest)
        return state

    def load(self, latest: Mapping[bytes, bytes]) -> None:
        """Load what the last checkpoint saved into a new state. Raises what `restore` does."""
        meta = latest.get(META_KEY)
        if meta is None:
            if latest:
                raise CheckpointCorrupt("the partition", "record @meta")
            return
        position = read(meta)
        self._committed, self._gone = AlreadyCommitted(position.next_offset, position), position.forgotten
        self.next_offset, self._saved_offset = self._committed.begins, position.next_offset
        self._load_sources(latest, position)
        if self.next_offset == position.next_offset:
            self._is_committed()

    def _load_sources(self, latest: Mapping[bytes, bytes], position: PartitionMeta) -> None:
        written = slots_of_sources(latest)
        for at_cut in position.sources:
            name = at_cut.replica, at_cut.dp_rank
            key = slot_key(*name, BASE)
            if at_cut.base == NO_BASE:
                # Added here to keep its place: the order of sources decides who is first at one moment.
                self._source(name)
                continue
            if key not in latest:
                raise CheckpointCorrupt(f"{name[0]}/{name[1]}", "the base")
            with damaged_if_it_fails(key):
                source, base = restore(key, latest, self._settings, self._counting(name), self._contradiction)
                if base.number != at_cut.base or base.next_offset > self._committed.included(name):
                    raise CheckpointDamaged(shown_key(key), "it is of another moment")
                self.sources[name] = source
                self._bases.add(name, source, base, written.pop(name))
        for name, slots in written.items():
            self._bases.leftovers(slot_key(*name, slot) for slot in slots)

    def _counting(self, key: SourceKey) -> NewCopies:
        """Return what counts the copies of a source's blocks."""
        return in_table

    def _contradiction(self, source: SourceResidency) -> str | None:
        """Return what of a restored source contradicts the rest; None if nothing does."""
        return contradiction(source, contradiction_of_entries)


def _key_of(record: Readable) -> SourceKey:
    said = said_by(record)
    return said.replica, said.dp_rank
