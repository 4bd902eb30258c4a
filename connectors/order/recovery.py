"""Decide what a source lacks, what to ask its engine for, and in which order to take it. No IO.

Live messages that cannot be taken yet wait in a backlog. An ask begins with the last batch taken, whose
fingerprint shows whether the engine is still in the same session; so one kind of ask serves for a gap, a
restart, the start of a connector and the unseen end of an idle stream. What an answer brings is merged with
the backlog, in order. The states are in `connectors.order.states`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from connectors.order.asks import Ask, RequestInFlight
from connectors.order.backlog import Backlog, Message
from connectors.order.log import SourceLog
from connectors.order.pacing import Pacing
from connectors.order.sequence import Decision, decide, fingerprint_of
from connectors.order.states import Need, Standing, Verdict
from schemas.reasons import GapReason, LeftOutReason, ReplayOutcome

MAX_HOLES = 64
"""So many answers in a row with a hole are followed by another ask; after that holes are final."""


class Recovery:
    """What one source waits for. `now` is the time that notices in the log get; the clock is for pauses."""

    def __init__(self, log: SourceLog, backlog: Backlog, clock: Callable[[], float]) -> None:
        self._log = log
        self._backlog = backlog
        self._clock = clock
        self._in_flight: RequestInFlight | None = None
        self._standing = self._standing_of_position()
        self._confirmed_arrivals = 0
        """Live messages that had come before the ask whose answer confirmed the session."""
        self._need = Need.MISSING if self._replays else Need.NOTHING
        """What to ask for next, once the answer in flight is over."""
        self._keeps_batches = False
        """Whether the engine ever answered with a batch."""
        self._hole_due: int | None = None
        """The number that was due when an answer was cut off at a hole."""
        self._holes = 0
        """Answers in a row that were cut off at one."""
        self._pacing = Pacing(clock)
        self.holding = self._standing is Standing.UNCONFIRMED
        """Whether all live messages have to come through `hold`."""
        self.answered_at = 0.0
        """When the engine answered last, by the clock; 0 for never."""
        self.ended_at = clock()
        """When the last ask was over, by the clock."""

    @property
    def _replays(self) -> bool:
        """Whether the source has an endpoint to ask."""
        return self._log.source.replay_endpoint is not None

    @property
    def ask(self) -> Ask | None:
        """What to ask the engine for now."""
        need, position = self._need, self._log.position
        if need is Need.NOTHING or not self._replays or self._in_flight is not None or self._pacing.paused:
            return None
        urgent = bool(self._backlog) or not (need is Need.TAIL or self._pacing.unanswered)
        return Ask(0 if position is None or need is Need.ALL else position.last, urgent)

    @property
    def enough(self) -> bool:
        """Whether the rest of the answer is of no use."""
        return self._in_flight is None or self._in_flight.over

    @property
    def settled(self) -> bool:
        """Whether nothing is to be asked for, or the engine does not answer."""
        asking = self.holding or self._in_flight is not None or (self._need and self._replays)
        return not asking or self._pacing.unanswered > 0

    def want(self) -> None:
        """Ask for the tail, though nothing is known to be missing."""
        self._ask_for(Need.TAIL)

    def hold(self, messages: Iterable[Message], now: float) -> None:
        """Take live messages that are not simply the next ones."""
        backlog = self._backlog
        waited = bool(backlog)
        for message in messages:
            if not backlog.add(message):
                self._log.counts.left_out["backlog"] += 1
                self._ask_for(Need.MISSING)
        self._go_on(now)
        if backlog and not waited:
            self._pacing.hurry()

    def asked(self) -> None:
        """Note that the ask was sent."""
        position, backlog, due = self._log.position, self._backlog, self._log.due
        probe = self._need is Need.ALL and position is not None
        first, fingerprint = 0, None
        if position is not None and not probe:
            first, fingerprint = position.last, position.fingerprint
        missed = self._hole_due == due or (bool(backlog) and backlog.first.seq > due)
        self._in_flight = RequestInFlight(first, fingerprint, due, missed, backlog.arrivals, first - 1, probe)
        self._need = Need.NOTHING

    def answered(self, messages: Iterable[tuple[int, bytes]], now: float) -> None:
        """Take a part of the answer: sequence numbers and payloads, in the order they came."""
        self.answered_at = self._clock()
        for seq, payload in messages:
            if (request := self._in_flight) is None or request.over:
                return
            if not request.accepts(seq):
                self._log.counts.left_out["disordered"] += 1
                continue
            message = Message(seq, fingerprint_of(payload), payload, now)
            self._keeps_batches = True
            begins = request.batches == 1
            if begins:
                self._compare_sessions(request, message, now)
            if not request.void and (seq != request.first or request.fingerprint is None):
                self._merge(request, message, now, truncated=begins)

    def not_in_the_future(self, now: float) -> None:
        """Let no remembered time be later than `now`: the clock may have been set back."""
        self.answered_at, self.ended_at = min(self.answered_at, now), min(self.ended_at, now)

    def ended(self, outcome: ReplayOutcome, now: float) -> None:
        """Conclude the request: nothing more of its answer comes."""
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
        if self._need is Need.NOTHING:
            self._holes, self._hole_due = 0, None

    def resumed(self) -> None:
        """Start over from the log's position, which is now one that another connector published."""
        self._begin_anew()
        self._standing = self._standing_of_position()
        self._confirmed_arrivals = 0
        self.holding = bool(self._backlog) or self._standing is Standing.UNCONFIRMED

    def close(self) -> None:
        """Drop what waits: the stream is over."""
        self._let_go("past_life", len(self._backlog))

    def silenced(self, now: float) -> None:
        """End the session of a silent engine; the next batch begins another."""
        self._log.end("silent", now)
        self._begin_anew()

    def _standing_of_position(self) -> Standing:
        """Return the standing at a start: only the engine can confirm that a stored session still goes on."""
        asks = self._log.position is not None and self._replays
        return Standing.UNCONFIRMED if asks else Standing.SURE

    def _ask_for(self, need: Need) -> None:
        if self._replays:
            self._need = max(self._need, need)

    @property
    def _hopeless(self) -> GapReason | None:
        """Why missing batches cannot be obtained now; None while they may still come."""
        if not self._replays:
            return "replay_not_configured"
        waits = self._in_flight is None and self._pacing.paused
        return "replay_timeout" if waits and self._pacing.hopeless else None

    def _conclude(self, request: RequestInFlight, outcome: ReplayOutcome, now: float) -> None:
        """Decide what the end of an answer makes final, and whether to ask again."""
        progress = self._log.due != request.due
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
        elif answered and not progress and not (request.hole or self._need is Need.ALL):
            if self._standing is Standing.REPLAYED and request.confirmed and outcome == "end":
                self._let_unpublished_go(request)
            self._drain(now, lost="replay_holes", arrivals=request.arrivals)
        if self._need is Need.TAIL:
            # This answer was the tail.
            self._need = Need.NOTHING
        unknown = self._log.position is None or self._standing is Standing.UNCONFIRMED
        if request.hole or (cut_off and progress) or (unknown and not answered):
            self._ask_for(Need.MISSING)

    def _go_on(self, now: float) -> None:
        """Take what can be taken, and see what the rest waits for."""
        self._drain(now)
        if (hopeless := self._hopeless) is not None:
            self._drain(now, lost=hopeless, arrivals=self._backlog.arrivals)
        if self._backlog and self._in_flight is None:
            self._ask_for(Need.MISSING)
        self.holding = bool(self._backlog) or self._standing is Standing.UNCONFIRMED

    def _drain(
        self, now: float, *, below: int | None = None, lost: GapReason | None = None, arrivals: int = 0
    ) -> None:
        """Take messages from the backlog until one has to wait, or its number reaches `below`.

        What is missing before the first `arrivals` messages is lost, for the reason `lost`.
        """
        backlog, log = self._backlog, self._log
        hopeless = not self._replays or lost == "replay_timeout"
        while backlog:
            head, final = backlog.first, backlog.first_arrival < arrivals
            if below is not None and head.seq >= below:
                return
            if final and log.position is not None and self._standing is Standing.UNCONFIRMED:
                self._standing = Standing.DOUBTED
            verdict = self._judge(head, final=final, hopeless=hopeless, answering=below is not None)
            if verdict is Verdict.WAIT:
                return
            if verdict is Verdict.BEGINS:
                log.end("restarted", now)
                self._begin_anew()
                if self._replays and head.seq > 0:
                    return
                continue
            if verdict is Verdict.TAKE:
                self._take(backlog.pop(), now, missing=lost or "replay_holes")
            elif verdict is Verdict.REPEATED:
                backlog.pop()
                log.repeated()
            else:
                self._let_go("too_late" if verdict is Verdict.TOO_LATE else "past_life")
                if verdict is Verdict.LATE:
                    self._ask_for(Need.MISSING)

    def _judge(self, head: Message, *, final: bool, hopeless: bool, answering: bool) -> Verdict:
        """Return what becomes of the first message of the backlog.

        `final`: what is missing before it is lost. `hopeless`: the engine will not answer. `answering`: an
        answer is being merged.
        """
        log = self._log
        if log.position is None:
            lacks = head.seq > 0
        elif self._standing is Standing.UNCONFIRMED and head.seq > 0:
            return Verdict.WAIT
        else:
            decision = decide(log.position, head.seq, head.fingerprint)
            if decision is Decision.DUPLICATE:
                return Verdict.REPEATED
            if decision is Decision.RESTART:
                if final and log.was_given_up(head):
                    return Verdict.TOO_LATE
                if self._backlog.first_arrival < self._confirmed_arrivals:
                    return Verdict.PAST
                if log.understands(head):
                    # A session ends once everything of it is in the log, never because of a late message.
                    complete = not answering and self._in_flight is None
                    late = head.seq > 0 or log.is_past(head)
                    return Verdict.BEGINS if complete and (final or not late) else Verdict.WAIT
            if not hopeless and log.is_past(head):
                return Verdict.LATE
            lacks = decision is Decision.AHEAD
        # A payload that cannot be understood decides nothing.
        return Verdict.WAIT if lacks and not final and log.understands(head) else Verdict.TAKE

    def _merge(self, request: RequestInFlight, message: Message, now: float, *, truncated: bool) -> None:
        """Take a batch of the answer, after those in the backlog that come before it.

        `truncated`: the answer begins with it, so the engine no longer has what is missing before it.
        """
        log, backlog = self._log, self._backlog
        lost: GapReason = "replay_truncated" if truncated else "replay_holes"
        if log.position is None and log.understands(message):
            # An answer from 0 begins with the oldest batch kept; only what came live can be older.
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
        """Take a batch; if its session is in doubt, a gap precedes it, even where no number is missing."""
        position = self._log.position
        if self._standing is Standing.DOUBTED:
            self._standing = Standing.SURE
            if position is not None and message.seq <= position.due:
                self._log.doubt(position, now)
        self._log.take(message, now, missing=missing, replayed=replayed)

    def _compare_sessions(self, request: RequestInFlight, message: Message, now: float) -> None:
        """Judge by the first batch of an answer whether the engine is still in the log's session."""
        position, backlog = self._log.position, self._backlog
        same = other = False
        # A queue may have held a live message for long: the engine's clock shows it, unless it was set back.
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
            self._another_session(request, now)
        elif not same and backlog.restart(position, backlog.arrivals, is_late) is not None:
            # This answer may be of either session; the next one decides.
            request.void = True
        if not request.void:
            # If the log went on after the ask, if only by its first batch, the engine was seen to go on.
            stands = position is not None and position.last == request.first
            if stands and request.fingerprint is not None and not same:
                self._standing = Standing.DOUBTED
            elif self._standing is not Standing.REPLAYED:
                self._standing = Standing.SURE
            self._confirmed_arrivals = request.arrivals

    def _answered_nothing(self, request: RequestInFlight, now: float) -> None:
        """Conclude from an empty answer: the engine has nothing from the last batch taken on.

        If it keeps batches for replay, it never published that one in its present session. Whether it keeps
        any may have to be found out first.
        """
        if request.fingerprint is None:
            return
        position, backlog = self._log.position, self._backlog
        contradicted = position is not None and bool(backlog) and backlog.first.seq <= position.last
        if self._keeps_batches or self._standing is Standing.UNCONFIRMED or contradicted:
            self._another_session(request, now)
        else:
            self._ask_for(Need.ALL)

    def _another_session(self, request: RequestInFlight, now: float) -> None:
        """End the log's session, as the engine is in another one; ask for that from its beginning."""
        request.void = True
        if not self._let_past_go(self._backlog.arrivals):
            # What waits is of the old session, or comes again with the replay of the new one.
            self._let_go("backlog", len(self._backlog))
        self._log.end("restarted", now)
        self._begin_anew()
        self._standing = Standing.REPLAYED

    def _let_unpublished_go(self, request: RequestInFlight) -> None:
        """Drop what came before an ask and is ahead of its whole answer: the engine never published it in
        this session, whatever its clock says. Done once a session; another ask shows if that is wrong.
        """
        backlog = self._backlog
        while backlog and backlog.first_arrival < request.arrivals and backlog.first.seq > request.newest:
            self._let_go("past_life")
            self._standing = Standing.SURE
            self._ask_for(Need.MISSING)

    def _let_past_go(self, arrivals: int) -> bool:
        """Drop what came before a restart that the backlog itself shows; return whether it shows one."""
        past = self._backlog.restart(self._log.position, arrivals, self._log.is_past)
        self._let_go("past_life", past or 0)
        return past is not None

    def _begin_anew(self) -> None:
        if self._in_flight is not None:
            self._in_flight.void = True
        self._standing = Standing.SURE
        self._holes, self._hole_due = 0, None
        self._pacing.begin_anew()
        self._need = Need.MISSING if self._replays else Need.NOTHING

    def _let_go(self, reason: LeftOutReason, messages: int = 1) -> None:
        for _ in range(messages):
            self._backlog.pop()
            self._log.counts.left_out[reason] += 1
