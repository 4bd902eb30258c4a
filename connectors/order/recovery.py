"""Decide what a source lacks, what to ask its engine for, and in which order to take it. No IO.

Live messages that cannot be taken yet wait in a backlog. An ask begins with the last batch taken, whose
fingerprint shows whether the engine is still in the same session; so a gap, a restart, the start of a
connector and the unseen end of an idle stream are one question. What an answer brings is merged with the
backlog, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from connectors.frames.bundle import MAX_SEQUENCE
from connectors.order.asks import Ask, LeftOut, Outcome, RequestInFlight
from connectors.order.backlog import Backlog, Message
from connectors.order.log import SourceLog
from connectors.order.pacing import Pacing
from connectors.order.sequence import Duplicate, Gap, Restart, decide, fingerprint_of
from schemas.reasons import GapReason

MAX_HOLES = 64
"""Answers in a row with a hole that are followed by another ask; then holes are final."""


class Recovery:
    """What one source waits for. `now` is the time that notices in the log get; the clock is for pauses."""

    def __init__(self, log: SourceLog, backlog: Backlog, *, replay: bool, clock: Callable[[], float]) -> None:
        self._log = log
        self._backlog = backlog
        self.replay = replay
        """Whether the source has an endpoint to ask."""
        self._clock = clock
        self._in_flight: RequestInFlight | None = None
        self._wanted = replay
        self._idly = False
        # A stored position is one of the engine's present session only if the engine says so.
        self._verified = log.position is None or not replay
        self._verified_arrivals = 0
        self._doubted = False
        self._buffers = False
        self._probe = False
        self._left_out_since = False
        # A replay began the session: live messages of the one before may still come, out of a queue.
        self._past_may_come = False
        self._hole_due: int | None = None
        self._understood: int | None = None
        self._holes = 0
        self._pacing = Pacing(clock)
        self.holding = not self._verified
        """Whether all live messages have to come through `hold`."""
        self.answered_at = 0.0
        """When the engine answered last, by the clock; 0 for never."""
        self.ended_at = clock()
        """When the last ask was over, by the clock."""

    @property
    def ask(self) -> Ask | None:
        """What to ask the engine for now."""
        if not (self._wanted and self.replay) or self._in_flight is not None:
            return None
        if self._pacing.paused:
            return None
        position = self._log.position
        urgent = bool(self._backlog) or not (self._idly or self._pacing.unanswered)
        return Ask(0 if position is None or self._probe else position.last, urgent)

    @property
    def enough(self) -> bool:
        """Whether nothing of use can come of the answer any more."""
        return self._in_flight is None or self._in_flight.over

    @property
    def settled(self) -> bool:
        """Whether nothing is to be asked for, or the engine does not answer."""
        asking = self.holding or self._in_flight is not None or (self._wanted and self.replay)
        return not asking or self._pacing.unanswered > 0

    def want(self) -> None:
        """Ask, though nothing is known to be missing."""
        self._idly = not self._wanted
        self._wanted = self.replay

    def hold(self, messages: Iterable[Message], now: float) -> None:
        """Take live messages that are not simply the next ones."""
        backlog = self._backlog
        waited = bool(backlog)
        for message in messages:
            if not backlog.add(message):
                self._leave_out("backlog")
                self._left_out_since = True
        self._go_on(now)
        if backlog and not waited:
            self._pacing.hurry()

    def asked(self) -> None:
        """The ask is on its way."""
        position, backlog, due = self._log.position, self._backlog, self._due
        probe = self._probe and position is not None
        first, fingerprint = 0, None
        if position is not None and not probe:
            first, fingerprint = position.last, position.fingerprint
        missed = self._hole_due == due or (bool(backlog) and backlog.first.seq > due)
        self._in_flight = RequestInFlight(
            first, fingerprint, due, missed, backlog.arrivals, newest=first - 1, probe=probe
        )
        self._wanted = self._idly = self._left_out_since = self._probe = False

    def answered(self, messages: Iterable[tuple[int, bytes]], now: float) -> None:
        """Take a part of the answer: sequence numbers and payloads, in the order they came."""
        self.answered_at = self._clock()
        for seq, payload in messages:
            request = self._in_flight
            if request is None or request.over:
                return
            if not request.newest < seq < MAX_SEQUENCE:
                request.disordered += 1
                self._leave_out("disordered")
                continue
            message = Message(seq, fingerprint_of(payload), payload, now)
            request.newest = seq
            request.batches += 1
            self._buffers = True
            begins = request.batches == 1
            if begins:
                self._compare_lives(request, message, now)
            if not request.void and (seq != request.first or request.fingerprint is None):
                self._merge(request, message, now, truncated=begins)

    def not_in_the_future(self, now: float) -> None:
        """The clock shows this: it may have been set back."""
        self.answered_at, self.ended_at = min(self.answered_at, now), min(self.ended_at, now)

    def ended(self, outcome: Outcome, now: float) -> None:
        """Nothing more comes of the answer."""
        request, self._in_flight = self._in_flight, None
        if request is None:
            return
        self._log.counts.asks[outcome] += 1
        self.ended_at = self._clock()
        if outcome == "end":
            self.answered_at = self.ended_at
            if not request.batches:
                self._answered_nothing(request, now)
        if not request.void:
            self._conclude(request, outcome, now)
        self._go_on(now)
        if not self._wanted:
            self._holes, self._hole_due = 0, None

    def resumed(self) -> None:
        """The log goes on where somebody else has ended."""
        self._begin_anew()
        self._idly = False
        self._verified = self._log.position is None or not self.replay
        self._verified_arrivals = 0
        self.holding = bool(self._backlog) or not self._verified

    def silenced(self, now: float) -> None:
        """End the session of an engine that nothing is heard of; whatever comes begins another."""
        self._log.end("silent", now)
        self._begin_anew()

    @property
    def _due(self) -> int:
        position = self._log.position
        return 0 if position is None else position.due

    @property
    def _hopeless(self) -> GapReason | None:
        """Why nothing that is missing can be had now."""
        if not self.replay:
            return "replay_not_configured"
        waits = self._in_flight is None and self._pacing.paused
        return "replay_timeout" if waits and self._pacing.hopeless else None

    def _conclude(self, request: RequestInFlight, outcome: Outcome, now: float) -> None:
        """See what the end of an answer makes final, and whether to ask again."""
        progress = self._due != request.due
        cut_off = outcome in ("timeout", "unreachable", "endless")
        answered = progress or not cut_off
        if answered:
            self._pacing.answered(progress=progress, waiting=bool(self._backlog))
        else:
            self._pacing.not_answered(waiting=bool(self._backlog))
        if request.hole:
            self._holes += 1
        elif progress:
            self._holes = 0
        if answered and self._holes > MAX_HOLES:
            self._drain(now, lost="replay_holes", arrivals=self._backlog.arrivals)
        elif answered and not progress and not (request.hole or self._probe):
            if self._past_may_come and request.confirmed and outcome == "end":
                self._let_unpublished_go(request)
            self._drain(now, lost="replay_holes", arrivals=request.arrivals)
        unknown = self._log.position is None or not self._verified
        self._wanted = (
            request.hole
            or self._probe
            or self._left_out_since
            or (cut_off and progress)
            or (unknown and not answered)
        )

    def _go_on(self, now: float) -> None:
        """Take what can be taken, and see what the rest waits for."""
        self._drain(now)
        hopeless = self._hopeless
        if hopeless is not None:
            self._drain(now, lost=hopeless, arrivals=self._backlog.arrivals)
        if self._backlog and self._in_flight is None:
            self._wanted = self.replay
        self.holding = bool(self._backlog) or not self._verified

    def _drain(
        self, now: float, *, below: int | None = None, lost: GapReason | None = None, arrivals: int = 0
    ) -> None:
        """Take the backlog as far as nothing is missing before it, and its numbers are less than `below`.

        For the first `arrivals` messages what is missing is lost for the reason `lost`.
        """
        backlog, log = self._backlog, self._log
        hopeless = not self.replay or lost == "replay_timeout"
        while backlog:
            head, arrival = backlog.first, backlog.first_arrival
            if below is not None and head.seq >= below:
                return
            final = arrival < arrivals
            position = log.position
            if position is None:
                waits = head.seq > 0
            elif not self._verified and head.seq > 0 and not final:
                return
            else:
                if not self._verified and final:
                    # Nobody will say of which session the stored position is.
                    self._verified = self._doubted = True
                decision = decide(position, head.seq, head.fingerprint)
                if isinstance(decision, Duplicate):
                    backlog.pop()
                    log.repeated()
                    continue
                if isinstance(decision, Restart) and arrival < self._verified_arrivals:
                    backlog.pop()
                    self._leave_out("past_life")
                    continue
                if isinstance(decision, Restart) and self._is_understood(head, arrival):
                    # A session ends once everything of it is in the log, never because of a late message.
                    complete = below is None and self._in_flight is None
                    late = head.seq > 0 or log.is_past(head)
                    if not complete or (late and not final):
                        return
                    log.end("restarted", now)
                    self._begin_anew()
                    if self.replay and head.seq > 0:
                        return
                    continue
                if not hopeless and log.is_past(head):
                    # Of a session that was over, and in a queue since; an ask shows if that is wrong.
                    backlog.pop()
                    self._leave_out("past_life")
                    self._wanted = self._left_out_since = True
                    continue
                waits = isinstance(decision, Gap)
            if waits and not final and self._is_understood(head, arrival):
                return
            self._take(backlog.pop(), now, missing=lost or "replay_holes")

    def _merge(self, request: RequestInFlight, message: Message, now: float, *, truncated: bool) -> None:
        """Take an answered batch, after what is in the backlog and comes before it.

        `truncated`: the answer begins with it.
        """
        log, backlog = self._log, self._backlog
        lost: GapReason = "replay_truncated" if truncated else "replay_holes"
        if log.position is None and log.understands(message):
            # Nothing is older than what an answer from 0 begins with, except what came live.
            self._drain(now, below=message.seq, lost=lost, arrivals=backlog.arrivals)
        while True:
            self._drain(now, below=message.seq)
            position = log.position
            if position is None or message.seq <= position.due:
                break
            if not log.understands(message):
                return
            asked_before = request.missed and position.due == request.due
            if not truncated and not asked_before and self._holes < MAX_HOLES:
                request.hole = True
                self._hole_due = position.due
                return
            if not backlog or not position.due < backlog.first.seq < message.seq:
                break
            self._drain(now, below=backlog.first.seq + 1, lost=lost, arrivals=backlog.arrivals)
        position = log.position
        if position is None or message.seq > position.last:
            self._take(message, now, missing=lost, replayed=True)

    def _take(self, message: Message, now: float, *, missing: GapReason, replayed: bool = False) -> None:
        """Take a batch; where its session is in doubt, it has a notice before it, if only one of doubt."""
        position, self._doubted, doubted = self._log.position, False, self._doubted
        if doubted and position is not None and message.seq <= position.due:
            self._log.doubt(position, now)
        self._log.take(message, now, missing=missing, replayed=replayed)

    def _compare_lives(self, request: RequestInFlight, message: Message, now: float) -> None:
        """See by what an answer begins with whether the engine is still in the session in the log."""
        position, backlog = self._log.position, self._backlog
        same = other = False
        # A queue may have held a live message until the log was far ahead of it. Where the engine's clock was
        # set back, it says nothing.
        set_back = self._log.is_past(message)

        def is_late(waiting: Message) -> bool:
            return not set_back and self._log.is_past(waiting)

        if position is None:
            self._let_past_go(request.arrivals)
        elif request.probe:
            same = position.taken(message.seq, message.fingerprint)
            other, request.void = not same, True
        elif message.seq == request.first and request.fingerprint is not None:
            same = request.confirmed = message.fingerprint == request.fingerprint
            other = not same
        else:
            shown = backlog.restart(position, request.arrivals, is_late) is not None
            other = shown or position.contradicts(message.seq, message.fingerprint)
        if other:
            self._another_life(request, now)
        elif not same and backlog.restart(position, backlog.arrivals, is_late) is not None:
            # This answer may be of either session; the next one decides.
            request.void = True
        if not request.void:
            # Who has gone on since it asked, if only to the first batch, has heard the engine go on.
            stands = (
                request.fingerprint is not None and position is not None and position.last == request.first
            )
            self._doubted = stands and not same
            self._verified = True
            self._verified_arrivals = request.arrivals

    def _answered_nothing(self, request: RequestInFlight, now: float) -> None:
        """The engine has nothing from the last batch taken on.

        If it keeps batches for replay, it never published that one in its present session. Whether it does
        may have to be found out.
        """
        if request.fingerprint is None:
            return
        position, backlog = self._log.position, self._backlog
        contradicted = position is not None and bool(backlog) and backlog.first.seq <= position.last
        if self._buffers or not self._verified or contradicted:
            self._another_life(request, now)
        else:
            self._probe = True

    def _another_life(self, request: RequestInFlight, now: float) -> None:
        """The engine is in another session than the log; ask for its beginning."""
        request.void = True
        if not self._let_past_go(self._backlog.arrivals):
            # What waits is of the old session, or comes again with the replay of the new one.
            while self._backlog:
                self._backlog.pop()
                self._leave_out("backlog")
        self._log.end("restarted", now)
        self._begin_anew()
        self._past_may_come = True

    def _let_unpublished_go(self, request: RequestInFlight) -> None:
        """Let go what came before an ask and is ahead of its whole answer: the engine never published it in
        this session, whatever its clock says. Once a session, and an ask shows if that is wrong.
        """
        backlog = self._backlog
        while backlog and backlog.first_arrival < request.arrivals and backlog.first.seq > request.newest:
            backlog.pop()
            self._leave_out("past_life")
            self._past_may_come, self._left_out_since = False, True

    def _let_past_go(self, arrivals: int) -> bool:
        """Let go what came before a restart that the backlog shows by itself, if it does."""
        past = self._backlog.restart(self._log.position, arrivals, self._log.is_past)
        for _ in range(past or 0):
            self._backlog.pop()
            self._leave_out("past_life")
        return past is not None

    def _begin_anew(self) -> None:
        if self._in_flight is not None:
            self._in_flight.void = True
        self._verified = True
        self._doubted = self._past_may_come = False
        self._hole_due = None
        self._holes = 0
        self._pacing.begin_anew()
        self._wanted = self.replay

    def _leave_out(self, reason: LeftOut) -> None:
        self._log.counts.left_out[reason] += 1

    def _is_understood(self, head: Message, arrival: int) -> bool:
        """Whatever nobody understands decides nothing."""
        if self._understood != arrival and self._log.understands(head):
            self._understood = arrival
        return self._understood == arrival
