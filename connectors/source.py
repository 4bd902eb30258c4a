"""One event stream of one engine: raw frames in, runs of normalised batches out. No IO."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from connectors.framing import SEQUENCE_BYTES
from connectors.normalise import Normaliser
from connectors.runs import RunBuilder
from connectors.sequence import MAX_SEQUENCE, Duplicate, Restart, SequencePosition, decide, fingerprint
from connectors.sequence import Gap as SequenceGap
from schemas.events import Batch, Closed, Event, EventsRecord, Gap, Opened, Removed, Stored, Undecodable
from schemas.reasons import ClosedReason, GapReason
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
        self._gap_reason: GapReason = (
            "replay_not_configured" if source.replay_endpoint is None else "replay_not_attempted"
        )

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

        Never raises for what an engine sends. A payload that nobody can understand is a notice in the
        stream, whatever its number, and decides nothing: neither gap nor restart rests on it.
        """
        normalise = self._normaliser.normalise
        add = self._runs.add
        position = self._position
        batches = engine_events = payload_bytes = 0
        for frames in messages:
            if len(frames) != 3:
                self._notice(Undecodable("frame_count"), received_at)
                continue
            _, number, payload = frames
            seq = int.from_bytes(number, "big")
            if len(number) != SEQUENCE_BYTES or seq >= MAX_SEQUENCE:
                self._notice(Undecodable("bad_seq"), received_at)
                continue
            mark = fingerprint(payload)
            due = position is not None and seq == position.due
            if not due and position is not None and isinstance(decide(position, seq, mark), Duplicate):
                self.counts.duplicates += 1
                self._runs.duplicates += 1
                continue
            batch = normalise(payload, seq=seq, received_at=received_at)
            if not batch.engine_events and not _understood(batch):
                self._notice(batch.events[0], received_at)
                if position is not None:
                    position.pass_over(seq)
                continue
            if due and position is not None:
                position.advance(seq, mark)
            else:
                position = self._place(seq, mark, received_at)
            batches += 1
            engine_events += batch.engine_events
            payload_bytes += len(payload)
            add(batch, self._size(batch, len(payload)), received_at, mark)
        if batches:
            counts = self.counts
            counts.batches += batches
            counts.engine_events += engine_events
            counts.payload_bytes += payload_bytes
            counts.last_received_at = received_at
        return self._taken()

    def note(self, event: Event, at: float) -> list[EventsRecord]:
        """Put a notice of the connector's own into the stream."""
        self._notice(event, at)
        return self._taken()

    def due(self, now: float) -> list[EventsRecord]:
        """Return the open run if its time has come."""
        self._runs.close_due(now)
        return self._taken()

    def flush(self) -> list[EventsRecord]:
        """Return the open run."""
        self._runs.flush()
        return self._taken()

    def close(self, reason: ClosedReason, *, blocks_lost: bool = True) -> list[EventsRecord]:
        """End the incarnation, if there is one, with a `Closed`; the next batch would begin another."""
        if self.incarnation:
            self._end(reason, blocks_lost, self._clock())
        return self._taken()

    def _place(self, seq: int, mark: int, now: float) -> SequencePosition:
        """Move to a batch that is not the next one: first contact, gap or restart."""
        if self._position is not None:
            decision = decide(self._position, seq, mark)
            if not isinstance(decision, Restart):
                if isinstance(decision, SequenceGap):
                    self.counts.gaps += 1
                    self.counts.lost_batches += decision.last - decision.first + 1
                    self._notice(Gap(decision.first, decision.last, self._gap_reason), now)
                self._position.advance(seq, mark)
                return self._position
            self.counts.restarts += 1
            self._end("restarted", True, now)
        self._position = SequencePosition(seq, mark)
        self._notice(Opened(seq, seq == 0, self.source.endpoint), now)
        return self._position

    def _end(self, reason: ClosedReason, blocks_lost: bool, now: float) -> None:
        self._notice(Closed(reason, blocks_lost), now)
        self._position = None
        # What comes next belongs to a life that began later, even if the clock was set back.
        self._runs.incarnation = max(int(now * 1e6), self._runs.incarnation + 1)

    def _notice(self, event: Event, now: float) -> None:
        if not self._runs.incarnation:
            self._runs.incarnation = max(int(now * 1e6), 1)
        if isinstance(event, Undecodable):
            self.counts.undecodable[event.reason] += event.count
        if self._observe is not None:
            self._observe(self.source, event)
        self._runs.add(Batch(None, now, now, [event]), _BATCH_BYTES + _NOTICE_BYTES, now)

    def _size(self, batch: Batch, payload_bytes: int) -> int:
        """Return about how many bytes a batch takes in a record; counts its Undecodables by the way."""
        if payload_bytes > _LARGE_PAYLOAD_BYTES and len(_encode(batch)) > MAX_BATCH_BYTES:
            batch.events = [Undecodable("frame_too_large", batch.seq)]
        size = _BATCH_BYTES
        for event in batch.events:
            if isinstance(event, Removed):
                size += _REMOVED_BYTES + len(event.hashes)
            elif isinstance(event, Stored):
                size += _STORED_BYTES + len(event.hashes)
            else:
                size += _NOTICE_BYTES
                if isinstance(event, Undecodable):
                    self.counts.undecodable[event.reason] += event.count
                    if self._observe is not None:
                        self._observe(self.source, event)
        return size

    def _taken(self) -> list[EventsRecord]:
        closed = self._runs.take_closed()
        for record in closed:
            record.engine = self._normaliser.engine
            record.wire_era = self._normaliser.wire_era
        return closed


def _understood(batch: Batch) -> bool:
    """Tell whether a payload was a batch at all, however bad its events."""
    if batch.engine_events or len(batch.events) != 1:
        return True
    only = batch.events[0]
    return not isinstance(only, Undecodable) or only.reason == "bad_timestamp"
