"""What goes into the log for a source: its batches in order, and notices where something happened. No IO."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from connectors.normalise.columns import EVENTS, FINGERPRINT, NO_RANK, PAYLOAD_BYTES, RANK, SEQ, SKIPPED
from connectors.normalise.forwarding import NOTHING_FORWARDED, Forwarding
from connectors.normalise.normaliser import Normaliser
from connectors.normalise.scanned import Scanned
from connectors.normalise.wire import MAX_BATCH_BYTES
from connectors.order.backlog import Message
from connectors.order.counts import StreamCounts
from connectors.order.gathered import Waiting
from connectors.order.runs import Reached, RunBuilder
from connectors.order.sequence import SequencePosition, StoredPosition
from connectors.sources import Source
from schemas.events import (
    MOST_REMARKS,
    Batch,
    Closed,
    Event,
    EventsRecord,
    Gap,
    Opened,
    Undecodable,
)
from schemas.hashing.content import SCHEME
from schemas.reasons import ClosedReason, GapReason, Remark
from schemas.settings import Connector, hash_domain

_REMARKED: Mapping[str, Remark] = {
    "unknown_type": "unknown_type",
    "no_identity": "no_identity",
    "no_salt_key": "no_salt_key",
}
"""Remarks for what cannot be decoded and concerns the whole stream."""

Observe = Callable[["Source", Event], None]
"""Called with each Opened, Gap, Undecodable and Closed as it happens."""


class Hearers(NamedTuple):
    """What is called at once for what happens to a source."""

    event: Observe = lambda source, event: None
    opened: Callable[[float], None] = lambda due_at: None
    """Called for each run that opens, with the time at which it is due."""


NOBODY = Hearers()

_encode = msgspec.msgpack.Encoder().encode


class Facts(Protocol):
    """What records say about the publisher of a stream."""

    @property
    def engine(self) -> str: ...
    @property
    def wire_era(self) -> str: ...
    @property
    def may_reannounce(self) -> bool | None: ...
    @property
    def one_copy(self) -> bool: ...
    @property
    def clears_all(self) -> bool | None: ...


class SourceLog:
    """The records of one source. It decides nothing: the caller knows what is next, and what is lost.

    The incarnation is the time of first contact in microseconds; the next session gets a greater one. `now`
    is the time of a notice, and a run's age counts from it.
    """

    def __init__(
        self,
        source: Source,
        settings: Connector,
        hearers: Hearers,
        resume: StoredPosition | None,
        now: float,
        forwarding: Forwarding = NOTHING_FORWARDED,
        facts: Facts | None = None,
    ) -> None:
        """`facts` are given where batches come decoded; otherwise the normaliser finds them out."""
        self.source = source
        self.counts = StreamCounts()
        self.normaliser = Normaliser(
            max_frame_bytes=settings.max_frame_bytes,
            forwarding=forwarding,
            clears_all=source.shared_sequence,
        )
        self._facts = facts or self.normaliser.era
        self.runs = RunBuilder(
            source,
            # Blocks compare by what they hold, whatever the engine's own hashes are.
            source.hash_domain
            if forwarding.linker is None
            else hash_domain(source.model, SCHEME, source.tenant),
            record_bytes=settings.record_bytes,
            linger_seconds=settings.linger_seconds,
            opened=hearers.opened,
        )
        self.position: SequencePosition | None = None
        """The last batch taken; None before the first one of a session."""
        self.newest_at = float("-inf")
        """Engine time of the last batch taken, seconds since the epoch."""
        self._given_up: tuple[range, float, float] | None = None
        """The last lost numbers of this session, and engine times of the batches before and after them."""
        self._observe = hearers.event
        self.rank = NO_RANK
        """Data-parallel rank that a batch of this session gave last; NO_RANK before any did."""
        self._remarks: list[str] = []
        """Of this session, as records have them."""
        self.begun = False
        """Whether the log has something of the present session."""
        if resume is not None and resume.incarnation:
            self.go_on(resume, now)

    @property
    def due(self) -> int:
        """The number to come; 0 before the first batch of a session."""
        return 0 if self.position is None else self.position.due

    def go_on(self, resume: StoredPosition, now: float) -> None:
        """Go on where the log ends: in the session that it gives, or after it if that was closed."""
        self._begin_anew()
        if resume.closed:
            self.runs.incarnation = max(int(now * 1e6), resume.incarnation + 1)
        else:
            self.runs.incarnation = resume.incarnation
            self.begun = True
            if resume.seq is not None:
                self.position = SequencePosition(resume.seq, resume.fingerprint)

    def take(self, message: Message, now: float, *, missing: GapReason, replayed: bool = False) -> None:
        """Take a batch that is ahead of the position, or the first one of a session.

        The numbers between, if there are any, are lost for the reason `missing`. A payload that cannot be
        understood makes a notice and nothing else, and not even that if it was passed over before.
        """
        seq, payload, received_at = message.seq, message.payload, message.received_at
        batch = self.normaliser.normalise(payload, seq=seq, received_at=received_at, replayed=replayed)
        skipped = self.normaliser.skipped
        position = self.position
        if not understood(batch):
            if not replayed or position is None or seq >= position.due:
                self.notice(batch.events[0], now)
            if position is not None:
                position.pass_over(seq)
            return
        self.ranked(self.normaliser.rank)
        fingerprint, size = message.fingerprint, len(payload)
        self.take_decoded(batch, seq, size, skipped, now, missing=missing, fingerprint=fingerprint)

    def take_decoded(
        self,
        batch: Batch,
        seq: int,
        payload_bytes: int,
        skipped: int,
        now: float,
        *,
        missing: GapReason,
        fingerprint: int = 0,
        reached: Reached | None = None,
    ) -> None:
        """Take a batch that was decoded and is ahead of the position, or the first one of a session.

        The numbers between, if there are any, are lost for the reason `missing`. `skipped` counts engine
        events that are not in it; `reached` says which of several publishers sent it.
        """
        position = self.position
        if position is None:
            self.position = SequencePosition(seq, fingerprint)
            self.notice(Opened(seq, seq == 0, self.source.endpoint), now)
        else:
            if seq > position.due:
                self._lose(position.due, seq - 1, missing, now)
                self._given_up = range(position.due, seq), self.newest_at, batch.ts
            (position.advance_by_replay if batch.replayed else position.advance)(seq, fingerprint)
        self.counts.replayed += batch.replayed
        # It may have waited while batches that came later were taken.
        received_at = max(self.counts.last_received_at, batch.received_at)
        self.took(1, batch.engine_events, skipped, payload_bytes, received_at, batch.ts)
        self.runs.add(batch, self.account_for(batch), now, fingerprint, reached)

    def take_scanned(
        self, position: SequencePosition, scanned: Scanned, first: int, end: int, received_at: float
    ) -> None:
        """Take the scanned batches `first` to `end` (exclusive), the next ones of this session."""
        rows = scanned.rows
        position.advance_all(rows[SEQ][first:end], rows[FINGERPRINT][first:end])
        for rank in {*rows[RANK][first:end]}:
            self.ranked(rank)
        self.took(
            end - first,
            sum(rows[EVENTS][first:end]),
            sum(rows[SKIPPED][first:end]),
            sum(rows[PAYLOAD_BYTES][first:end]),
            received_at,
            scanned.published_at(end - 1),
        )
        self.runs.add_scanned(scanned, first, end, received_at)

    def take_gathered(self, position: SequencePosition, waiting: Waiting, looked_at: float) -> None:
        """Take batches that were gathered; `looked_at` is for `RunBuilder.add_encoded`."""
        seqs, fingerprints = waiting.seqs, waiting.fingerprints
        self.normaliser.passed(len(seqs))
        position.advance_all(seqs, fingerprints)
        self.took(
            len(seqs),
            waiting.engine_events,
            waiting.skipped,
            waiting.payload_bytes,
            waiting.until,
            waiting.published_at,
        )
        self.counts.seconds += waiting.seconds
        self.runs.add_encoded(waiting.encoded, seqs, fingerprints[-1], waiting.since, looked_at)

    def took(
        self,
        batches: int,
        engine_events: int,
        skipped: int,
        payload_bytes: int,
        received_at: float,
        published_at: float,
    ) -> None:
        """Count batches that were taken, and remember when the engine published the last of them."""
        counts = self.counts
        counts.batches += batches
        counts.engine_events += engine_events
        counts.skipped_events += skipped
        counts.payload_bytes += payload_bytes
        counts.last_received_at = received_at
        self.newest_at = published_at

    def ranked(self, rank: int) -> None:
        """Compare the data-parallel rank that a batch gives with the settings and with earlier batches."""
        if rank in (NO_RANK, self.rank):
            return
        if rank != self.source.dp_rank:
            self.remark("other_rank", str(rank))
        if self.rank != NO_RANK:
            self.remark("mixed_ranks")
        self.rank = rank

    def remark(self, reason: Remark, about: str = "") -> None:
        """Note what is unusual about the stream; `about` has at most 64 characters."""
        remark = f"{reason}:{about}" if about else reason
        if remark not in self._remarks and len(self._remarks) < MOST_REMARKS:
            self._remarks.append(remark)

    def repeated(self) -> None:
        """Count a batch that was taken before."""
        self.counts.duplicates += 1
        self.runs.duplicates += 1

    def end(self, reason: ClosedReason, now: float) -> None:
        """End the session, if the log has something of it; what comes next belongs to another one."""
        if self.begun:
            self.counts.restarts += reason == "restarted"
            self.notice(Closed(reason), now)
            # Greater, even if the clock was set back.
            self.runs.incarnation = max(int(now * 1e6), self.runs.incarnation + 1)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.begun = False
        self.rank = NO_RANK
        self._remarks = []
        self.position = None
        self.newest_at = float("-inf")
        self._given_up = None

    def notice(self, event: Event, now: float) -> None:
        """Put a notice into the stream, after what was taken."""
        if not self.runs.incarnation:
            self.runs.incarnation = max(int(now * 1e6), 1)
        self.begun = True
        self._tell(event)
        batch = Batch(None, now, now, [event])
        self.runs.add(batch, len(_encode(batch)), now)

    def account_for(self, batch: Batch) -> int:
        """Count and report the Undecodables of a batch; return how many bytes it takes in a record.

        The events of a batch that is too large are replaced.
        """
        size = len(_encode(batch))
        if size > MAX_BATCH_BYTES:
            batch.events = [Undecodable("frame_too_large", batch.seq)]
            size = len(_encode(batch))
        for event in batch.events:
            if isinstance(event, Undecodable):
                if (remark := _REMARKED.get(event.reason)) is not None:
                    self.remark(remark, event.event_type or "")
                self._tell(event)
        return size

    def _tell(self, event: Event) -> None:
        if isinstance(event, Undecodable):
            self.counts.undecodable[event.reason] += event.count
        self._observe(self.source, event)

    def understands(self, message: Message) -> bool:
        """Tell whether a payload is a batch at all: one that is not decides nothing."""
        message.understood = message.understood or understood(self._decoded(message))
        return message.understood

    def is_past(self, message: Message) -> bool:
        """Tell whether a batch is older than the last one taken, by the engine's clock."""
        batch = self._decoded(message)
        return understood(batch) and batch.ts < self.newest_at

    def was_given_up(self, message: Message) -> bool:
        """Tell whether a batch is one of the last lost ones, by its number and the engine's clock."""
        if self._given_up is None or message.seq not in self._given_up[0]:
            return False
        _, before, behind = self._given_up
        batch = self._decoded(message)
        return understood(batch) and before <= batch.ts <= behind

    def take_closed(self) -> list[EventsRecord]:
        """Return the records that were closed since the last call, in order."""
        closed = self.runs.take_closed()
        for record in closed:
            record.engine = self._facts.engine
            record.wire_era = self._facts.wire_era
            record.may_reannounce = self._facts.may_reannounce
            record.one_copy = self._facts.one_copy
            record.clears_all = self._facts.clears_all
            record.remarks = [*self._remarks]
        return closed

    def _decoded(self, message: Message) -> Batch:
        return self.normaliser.normalise(message.payload, seq=message.seq, received_at=message.received_at)

    def doubt(self, position: SequencePosition, now: float) -> None:
        """Note that the next batch may be of another session: the engine no longer has the last one taken."""
        self.counts.gaps_by_reason["unconfirmed"] += 1
        self.notice(Gap(position.last, position.last, "unconfirmed"), now)

    def _lose(self, first: int, last: int, reason: GapReason, now: float) -> None:
        self.counts.gaps_by_reason[reason] += 1
        self.counts.lost_batches += last - first + 1
        self.notice(Gap(first, last, reason), now)


def understood(batch: Batch) -> bool:
    """Tell whether a payload was a batch at all, however bad its events."""
    if batch.engine_events or len(batch.events) != 1:
        return True
    only = batch.events[0]
    return not isinstance(only, Undecodable) or only.reason == "bad_timestamp"
