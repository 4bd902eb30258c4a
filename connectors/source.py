"""One event stream of one engine: raw frames in, runs of normalised batches out. No IO."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from connectors.normalise import Normaliser
from connectors.runs import RunBuilder
from connectors.sequence import MAX_SEQUENCE, Duplicate, SequencePosition, decide, fingerprint
from connectors.sequence import Gap as SequenceGap
from schemas.events import Batch, Closed, Event, EventsRecord, Gap, Opened, Removed, Stored, Undecodable
from schemas.reasons import ClosedReason, UndecodableReason
from schemas.settings import Connector

MAX_BATCH_BYTES = 3 << 20
"""Packed size beyond which a batch is replaced by `frame_too_large`: 400,000 blocks in one engine step."""
_LARGE_PAYLOAD_BYTES = 128 << 10
"""From here on a batch is measured, not estimated: a small payload cannot grow beyond a record's bound."""
_BATCH_BYTES = 40
_STORED_BYTES = 90
_REMOVED_BYTES = 30
_NOTICE_BYTES = 80

SourceKey = tuple[str, int]
"""(replica id, dp_rank)."""
Frames = Sequence[bytes]
"""The frames of one ZMQ message: topic, sequence number (8 bytes, big-endian), payload."""
Observe = Callable[["Source", Event], None]
"""Told of each Opened, Gap, Undecodable and Closed as it happens."""

_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Source:
    """Identity of an event stream, and where it is."""

    replica: str
    dp_rank: int
    model: str
    tenant: str
    hash_domain: str
    endpoint: str
    replay_endpoint: str | None = None
    topic: str = ""
    metrics_url: str | None = None

    @property
    def key(self) -> SourceKey:
        return (self.replica, self.dp_rank)


@dataclass(slots=True)
class StreamCounts:
    """What a stream has seen since the process started."""

    batches: int = 0
    engine_events: int = 0
    payload_bytes: int = 0
    duplicates: int = 0
    gaps: int = 0
    lost_batches: int = 0
    restarts: int = 0
    last_received_at: float = 0.0
    """Connector clock, seconds since the epoch; 0 before the first batch."""
    undecodable: Counter[str] = field(default_factory=Counter)
    """By `schemas.reasons.UndecodableReason`."""


class SourceStream:
    """Turns the messages of one source, in the order they came, into records.

    The incarnation is the time of first contact in microseconds; a restart begins a greater one. Every
    method returns the records that it closed, in order, usually none.
    """

    def __init__(
        self,
        source: Source,
        settings: Connector,
        clock: Callable[[], float],
        observe: Observe | None = None,
    ) -> None:
        """`clock` gives seconds since the epoch, as `received_at` and `now` of the methods do."""
        self.source = source
        self.counts = StreamCounts()
        self._clock = clock
        self._observe = observe
        self._normaliser = Normaliser(
            max_frame_bytes=settings.max_frame_bytes, forward_session_ids=settings.forward_session_ids
        )
        self._runs = RunBuilder(
            source, record_bytes=settings.record_bytes, linger_seconds=settings.linger_seconds
        )
        self._position: SequencePosition | None = None

    @property
    def position(self) -> SequencePosition | None:
        """The last batch taken; None before the first one of an incarnation."""
        return self._position

    @property
    def incarnation(self) -> int:
        """The current incarnation; 0 before anything is known of the source."""
        return self._runs.incarnation

    @property
    def next_deadline(self) -> float | None:
        """When `due` will have something to close."""
        return self._runs.deadline

    def feed(self, frames: Frames, received_at: float) -> list[EventsRecord]:
        """Take one message."""
        return self.feed_all((frames,), received_at)

    def feed_all(self, messages: Iterable[Frames], received_at: float) -> list[EventsRecord]:
        """Take messages that came together.

        Never raises for what an engine sends. A message that nobody can understand moves the position only
        if its number was the one that was due.
        """
        closed: list[EventsRecord] = []
        normalise = self._normaliser.normalise
        position = self._position
        for frames in messages:
            if len(frames) != 3:
                closed += self._reject("frame_count", None, received_at)
                continue
            number, payload = frames[1], frames[2]
            seq = int.from_bytes(number, "big")
            if len(number) != 8 or seq >= MAX_SEQUENCE:
                closed += self._reject("bad_seq", None, received_at)
                continue
            mark = fingerprint(payload)
            if position is not None and seq == position.last + 1:
                batch = normalise(payload, seq=seq, received_at=received_at)
                position.advance(seq, mark)
            else:
                if position is not None and isinstance(decide(position, seq, mark), Duplicate):
                    self.counts.duplicates += 1
                    self._runs.duplicates += 1
                    continue
                batch = normalise(payload, seq=seq, received_at=received_at)
                if not batch.engine_events and len(batch.events) == 1:
                    only = batch.events[0]
                    if isinstance(only, Undecodable) and only.reason != "bad_timestamp":
                        closed += self._notice(only, received_at)
                        continue
                closed += self._place(seq, mark, received_at)
                position = self._position
            closed += self._take(batch, len(payload))
        return self._stamped(closed)

    def note(self, event: Event, at: float) -> list[EventsRecord]:
        """Put a notice of the connector's own into the stream."""
        return self._stamped(self._notice(event, at))

    def due(self, now: float) -> list[EventsRecord]:
        """Return the open run if its time has come."""
        return self._stamped(self._runs.due(now))

    def flush(self) -> list[EventsRecord]:
        """Return the open run."""
        return self._stamped(self._runs.flush())

    def close(self, reason: ClosedReason, *, blocks_lost: bool = True) -> list[EventsRecord]:
        """End the incarnation, if there is one, with a `Closed`; the next batch would begin another."""
        if not self.incarnation:
            return []
        closed = self._end(reason, blocks_lost, self._clock())
        return self._stamped(closed)

    def _place(self, seq: int, mark: int, now: float) -> list[EventsRecord]:
        """Move to a batch that is not the next one: first contact, gap or restart."""
        closed: list[EventsRecord] = []
        if self._position is not None:
            decision = decide(self._position, seq, mark)
            if isinstance(decision, SequenceGap):
                self.counts.gaps += 1
                self.counts.lost_batches += decision.last - decision.first + 1
                reason = "replay_not_attempted" if self.source.replay_endpoint else "replay_not_configured"
                self._position.advance(seq, mark)
                return self._notice(Gap(decision.first, decision.last, reason), now)
            self.counts.restarts += 1
            closed = self._end("restarted", True, now)
        self._position = SequencePosition(seq, mark)
        return closed + self._notice(Opened(seq, seq == 0, self.source.endpoint), now)

    def _end(self, reason: ClosedReason, blocks_lost: bool, now: float) -> list[EventsRecord]:
        closed = self._notice(Closed(reason, blocks_lost), now) + self._runs.flush()
        self._position = None
        # What comes next belongs to a life that began later, even if the clock was set back.
        self._runs.incarnation = max(int(now * 1e6), self._runs.incarnation + 1)
        return closed

    def _reject(self, reason: UndecodableReason, seq: int | None, now: float) -> list[EventsRecord]:
        return self._notice(Undecodable(reason, seq), now)

    def _notice(self, event: Event, now: float) -> list[EventsRecord]:
        if not self._runs.incarnation:
            self._runs.incarnation = max(int(now * 1e6), 1)
        if isinstance(event, Undecodable):
            self.counts.undecodable[event.reason] += event.count
        if self._observe is not None:
            self._observe(self.source, event)
        return self._runs.add(Batch(None, now, now, [event]), _NOTICE_BYTES, now)

    def _take(self, batch: Batch, payload_bytes: int) -> list[EventsRecord]:
        if payload_bytes > _LARGE_PAYLOAD_BYTES:
            size = len(_encode(batch))
            if size > MAX_BATCH_BYTES:
                batch.events = [Undecodable("frame_too_large", batch.seq)]
                size = _BATCH_BYTES
        else:
            size = _BATCH_BYTES
        for event in batch.events:
            kind = type(event)
            if kind is Removed:
                size += _REMOVED_BYTES + len(event.hashes)  # type: ignore[union-attr] # by its type
            elif kind is Stored:
                size += _STORED_BYTES + len(event.hashes)  # type: ignore[union-attr] # by its type
            else:
                size += _NOTICE_BYTES
                if kind is Undecodable:
                    self.counts.undecodable[event.reason] += event.count  # type: ignore[union-attr]
                    if self._observe is not None:
                        self._observe(self.source, event)
        counts = self.counts
        counts.batches += 1
        counts.engine_events += batch.engine_events
        counts.payload_bytes += payload_bytes
        counts.last_received_at = batch.received_at
        return self._runs.add(batch, size, batch.received_at)

    def _stamped(self, closed: list[EventsRecord]) -> list[EventsRecord]:
        for record in closed:
            record.engine = self._normaliser.engine
            record.wire_era = self._normaliser.wire_era
        return closed
