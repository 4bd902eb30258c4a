"""One event stream of one engine: raw frames in, runs of normalised batches out. No IO."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import cast

from connectors.frames.bundle import MAX_SEQUENCE, SEQUENCE_BYTES, Bundle, Frames
from connectors.normalise.forwarding import NOTHING_FORWARDED, Forwarding
from connectors.normalise.scanned import Scanned
from connectors.order.asks import Ask
from connectors.order.backlog import Backlog, BacklogBudget, Message
from connectors.order.counts import StreamCounts
from connectors.order.gathered import NOTHING, Slot
from connectors.order.log import NOBODY, Hearers, SourceLog, understood
from connectors.order.recovery import Recovery
from connectors.order.sequence import SequencePosition, StoredPosition, fingerprint_of
from connectors.sources import Source
from schemas.events import Event, EventsRecord, Undecodable
from schemas.reasons import ClosedReason, ReplayOutcome
from schemas.settings import Connector

FIRST_UNNUMBERED = 1
"""Number given to the first batch of a publisher without numbers: 0 would mean that none came before."""


class SourceStream:
    """Turns the messages of one source, in the order they came, and the replays it asks for into records.

    Batches leave in the order of their numbers. While something before them is missing and can be asked for,
    live messages wait. Most methods return the records that they closed, in order, usually none.
    """

    def __init__(
        self,
        source: Source,
        settings: Connector,
        clock: Callable[[], float],
        hearers: Hearers = NOBODY,
        resume: StoredPosition | None = None,
        budget: BacklogBudget | None = None,
        slot: Slot | None = None,
        forwarding: Forwarding = NOTHING_FORWARDED,
    ) -> None:
        """`clock` gives seconds since the epoch, as `received_at` and `now` of the methods do.

        `resume` is where the log ends for this source; `budget` is shared with other streams.
        Batches that are put into `slot` count as taken. `due` has to be called when a run that opened is due
        (`hearers.opened` says when, for `OpenRuns`), and when batches of the slot are old enough.
        """
        self.source = source
        self._clock = clock
        self._settings = settings
        self._log = SourceLog(source, settings, hearers, resume, clock(), forwarding)
        backlog = Backlog(budget or BacklogBudget(settings.backlog_bytes))
        self._recovery = Recovery(self._log, backlog, clock)
        self._slot = slot
        # The scanner knows no clear that means every medium.
        self._may_scan = not source.shared_sequence
        self._next_number: int | None = None
        """Number to give the next message of a publisher without numbers; None while messages have one."""
        self._began_at = clock()
        self._live_at = 0.0
        self._connected_at = 0.0

    @property
    def counts(self) -> StreamCounts:
        """What the stream has seen since the process started."""
        self._take_gathered()
        return self._log.counts

    @property
    def position(self) -> SequencePosition | None:
        """The last batch taken; None before the first one of a session."""
        self._take_gathered()
        return self._log.position

    @property
    def incarnation(self) -> int:
        """The current incarnation; 0 before anything is known of the source."""
        return self._log.runs.incarnation

    @property
    def ask(self) -> Ask | None:
        """The replay to ask the engine for now; None when nothing is wanted or may be asked for yet."""
        ask = self._recovery.ask
        return ask if ask is None or not self._take_gathered() else self._recovery.ask

    @property
    def enough(self) -> bool:
        """Whether the rest of the answer is of no use."""
        return self._recovery.enough

    @property
    def settled(self) -> bool:
        """Whether nothing is to be asked for, or the engine does not answer."""
        return self._recovery.settled

    @property
    def answered_at(self) -> float:
        """When the engine answered a replay request last; 0 for never."""
        return self._recovery.answered_at

    @property
    def heard_at(self) -> float:
        """When the last live message came; 0 for never. No `look` leaves it in the future."""
        self._take_gathered()
        return self._live_at

    @property
    def due_at(self) -> float | None:
        """When `due` will close the open run; None when there is none."""
        self._take_gathered()
        return self._log.runs.deadline

    @property
    def scans(self) -> bool:
        """Whether the next bundle may be scanned: no message waits, and it is known which number is due."""
        return self._may_scan and self._log.position is not None and not self._recovery.holding

    def readdress(self, source: Source) -> None:
        """Go on with the same engine at other addresses, or in another role."""
        self.source = self._log.source = self._log.runs.source = source

    def feed(self, frames: Frames, received_at: float) -> list[EventsRecord]:
        """Take one message."""
        return self.feed_all((frames,), received_at)

    def feed_all(
        self, messages: Iterable[Frames], received_at: float, scanned: Scanned | None = None
    ) -> list[EventsRecord]:
        """Take messages that came together; a bundle's well-formed ones leave as packed records.

        `scanned` is the scanner's result for a bundle that was scanned together with those of others. Never
        raises for what an engine sends. A payload that cannot be understood becomes a notice in the stream,
        whatever its number, and decides nothing: no gap and no restart is concluded from it.
        """
        self._take_gathered()
        self._live_at = received_at
        if isinstance(messages, Bundle) and self._may_scan:
            self._take_bundle(messages, received_at, scanned)
        else:
            self._take_each(messages, received_at)
        return self._closed()

    def _take_gathered(self, looked_at: float = float("-inf")) -> bool:
        """Take what is in the slot, before the stream is read or changed; return whether there was anything.

        The caller then closes runs that are due by `looked_at`.
        """
        waiting = None if self._slot is None else self._slot.take()
        if waiting is None:
            return False
        # Nothing is put into the slot before there is a position.
        self._log.take_gathered(cast(SequencePosition, self._log.position), waiting, looked_at)
        self._live_at = waiting.until
        return True

    def _closed(self) -> list[EventsRecord]:
        """Return the records that were closed, and let the slot accept the batch that is due now."""
        log = self._log
        if self._slot is not None:
            position = log.position
            due = NOTHING if position is None or self._recovery.holding else position.due
            self._slot.admit(due, log.normaliser.until_look, log.runs.room, log.rank)
        return log.take_closed()

    def _take_bundle(self, messages: Bundle, received_at: float, together: Scanned | None) -> None:
        """Take unbroken stretches of well-formed batches at once, and what is between them one by one."""
        log = self._log
        scanned: Scanned | None = None
        at = 0
        while at < len(messages):
            if self._recovery.holding:
                self._take_each((messages[i] for i in range(at, len(messages))), received_at)
                return
            if log.position is not None:
                scanned = scanned or log.normaliser.scan(messages, received_at, together)
                end = scanned.stretch(at, log.position.due)
                if end > at:
                    log.take_scanned(log.position, scanned, at, end, received_at)
                    at = end
                    continue
            self._take_each((messages[at],), received_at)
            at += 1

    def _take_each(self, messages: Iterable[Frames], received_at: float) -> None:
        recovery = self._recovery
        rest = self._numbered(messages, received_at)
        while not recovery.holding:
            other = self._take_due(rest, received_at)
            if other is None:
                return
            recovery.hold(self._checked((other,), received_at), received_at)
        recovery.hold(self._checked(rest, received_at), received_at)

    def _take_due(self, messages: Iterator[Frames], received_at: float) -> Frames | None:
        """Take numbered messages as long as each is the next batch; return the first that is not, or None."""
        log = self._log
        normalise, add = log.normaliser.normalise, log.runs.add
        position = log.position
        due = -1 if position is None else position.due
        batches = engine_events = skipped = payload_bytes = 0
        published_at = log.newest_at
        other: Frames | None = None
        for frames in messages:
            payload = frames[2]
            seq = int.from_bytes(frames[1], "big")
            if position is None or seq != due:
                other = frames
                break
            batch = normalise(payload, seq=seq, received_at=received_at)
            if not batch.engine_events and not understood(batch):
                log.notice(batch.events[0], received_at)
                position.pass_over(seq)
                due = position.due
                continue
            fingerprint = fingerprint_of(payload)
            position.advance(seq, fingerprint)
            due = seq + 1
            batches += 1
            engine_events += batch.engine_events
            skipped += log.normaliser.skipped
            log.ranked(log.normaliser.rank)
            payload_bytes += len(payload)
            published_at = batch.ts
            add(batch, log.account_for(batch), received_at, fingerprint)
        if batches:
            log.took(batches, engine_events, skipped, payload_bytes, received_at, published_at)
        return other

    def asked(self) -> None:
        """Note that the request of `ask` was sent; `replay_ended` must follow, sooner or later."""
        self._take_gathered()
        self._recovery.asked()

    def replayed(self, batches: Iterable[tuple[int, bytes]], received_at: float) -> list[EventsRecord]:
        """Take a part of the answer: (sequence number, payload) in the order they came."""
        self._take_gathered()
        self._recovery.answered(batches, received_at)
        return self._closed()

    def replay_ended(self, outcome: ReplayOutcome, now: float) -> list[EventsRecord]:
        """Conclude the answer."""
        self._take_gathered()
        self._recovery.ended(outcome, now)
        return self._closed()

    def look(self, now: float, *, connected: bool) -> list[EventsRecord]:
        """Check, about once a second, whether to ask for the tail, and whether the engine is silent.

        `connected`: whether the event stream is connected, as far as the socket knows.
        """
        self._take_gathered()
        recovery, log = self._recovery, self._log
        if connected:
            self._connected_at = now
        self._not_in_the_future(now)
        if now - max(self._live_at, recovery.ended_at) >= self._settings.tail_seconds:
            recovery.want()
        heard_at = max(self._live_at, recovery.answered_at, self._connected_at, self._began_at)
        if log.position is not None and now - heard_at >= self._settings.silent_seconds:
            recovery.silenced(now)
        if log.position is not None:
            log.position.forget_replayed()
        return self._closed()

    def _not_in_the_future(self, now: float) -> None:
        """Let no remembered time be later than `now`: setting the clock back must not make anything wait."""
        counts = self._log.counts
        counts.last_received_at = min(counts.last_received_at, now)
        self._live_at = min(self._live_at, now)
        self._connected_at = min(self._connected_at, now)
        self._began_at = min(self._began_at, now)
        self._recovery.not_in_the_future(now)

    def note(self, event: Event, at: float) -> list[EventsRecord]:
        """Put a notice of the connector's own into the stream."""
        self._take_gathered()
        self._log.notice(event, at)
        return self._closed()

    def due(self, now: float) -> list[EventsRecord]:
        """Return the open run if its time has come."""
        self._take_gathered(now)
        self._log.runs.close_due(now)
        return self._closed()

    def flush(self) -> list[EventsRecord]:
        """Return the open run. What waits for a replay is not in it: a later start asks for it again."""
        self._take_gathered()
        self._log.runs.flush()
        return self._closed()

    def close(self, reason: ClosedReason) -> list[EventsRecord]:
        """End the session, if there is one, with a `Closed`; the next batch would begin another.

        What waits for a replay is dropped.
        """
        self._take_gathered()
        self._recovery.close()
        self._log.end(reason, self._clock())
        return self._closed()

    def overtaken(self, by: StoredPosition) -> list[EventsRecord]:
        """Go on with a later incarnation that another connector has published, where the log ends.

        Readers ignore what comes of an earlier one.
        """
        self._take_gathered()
        if by.incarnation > self.incarnation:
            self._log.go_on(by, self._clock())
            self._recovery.resumed()
            if self._next_number is not None and self._log.position is not None:
                self._next_number = max(self._next_number, self._log.position.due + 1)
        return self._closed()

    def _numbered(self, messages: Iterable[Frames], received_at: float) -> Iterator[Frames]:
        """Yield messages of three frames, the second of which has the size of a number."""
        for frames in messages:
            if len(frames) == 3 and len(frames[1]) == SEQUENCE_BYTES:
                yield frames
            elif (numbered := self._with_number(frames)) is not None:
                yield numbered
            else:
                self._refuse(frames, received_at)

    def _checked(self, messages: Iterable[Frames], received_at: float) -> Iterator[Message]:
        for frames in messages:
            seq = int.from_bytes(frames[1], "big")
            if seq >= MAX_SEQUENCE:
                self._refuse(frames, received_at)
                continue
            yield Message(seq, fingerprint_of(frames[2]), frames[2], received_at)

    def _refuse(self, frames: Frames, received_at: float) -> None:
        self._log.notice(Undecodable("frame_count" if len(frames) != 3 else "bad_seq"), received_at)

    def _with_number(self, frames: Frames) -> Frames | None:
        """Return a message of a publisher without numbers with a number; None if it is not of such a one.

        What such a publisher loses cannot be seen. What it published before a restarted connector went on
        counts as one lost batch.
        """
        log = self._log
        if len(frames) not in (1, 2):
            return None
        number = self._next_number
        if number is None:
            message = Message(FIRST_UNNUMBERED, 0, frames[-1], self._clock())
            if log.counts.batches or not log.understands(message):
                return None
            number = FIRST_UNNUMBERED if log.position is None else log.position.due + 1
            log.normaliser.unnumbered()
        log.remark("no_sequence")
        self._next_number = number + 1
        return b"", number.to_bytes(SEQUENCE_BYTES, "big"), frames[-1]
