"""Streams against a plain list of what an engine published, under every fault of wire, replay and engine."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.frames.bundle import MAX_SEQUENCE
from connectors.order.pacing import UNANSWERED_ASKS
from connectors.order.sequence import StoredPosition, fingerprint_of
from connectors.order.stream import SourceStream
from connectors.sources import Source
from schemas.events import Closed, EventsRecord, Gap, Opened, Stored
from schemas.hashes import HASH_BYTES
from schemas.settings import Connector
from tests.support.suite.night import examples

SOURCE = Source("r", 0, "m", "t", "d", "tcp://127.0.0.1:1", replay_endpoint="tcp://127.0.0.1:2")
LIFE = 1_000_000
WHOLE_LIFE = 10_000
"""Batches that an engine buffers, so many that nothing ever leaves the buffer."""
Batch = tuple[int, int]
"""(life, seq): also what the batch says, as the hash of its only block."""


class EngineModel:
    """Counts from 0 in each life, keeps the last batches for replay, and never forgets what it did."""

    def __init__(self, buffer_steps: int) -> None:
        self.life = 0
        self.seq = 0
        self.payloads: dict[Batch, bytes] = {}
        self.buffer: deque[int] = deque(maxlen=buffer_steps)
        self._clock = 0

    def publish(self) -> Batch:
        self._clock += 1
        stored = ["BlockStored", [self.life * LIFE + self.seq], None, [1, 2], 2, None, "GPU", None]
        batch = self.life, self.seq
        self.payloads[batch] = msgspec.msgpack.encode([1_700_000_000.0 + self._clock, [stored], 0])
        self.buffer.append(self.seq)
        self.seq += 1
        return batch

    def skip(self) -> None:
        self.seq += 1

    def restart(self) -> None:
        self.life += 1
        self.seq = 0
        self.buffer.clear()


@dataclass
class Answer:
    """What is still to come of a replay."""

    batches: list[tuple[int, bytes]]
    outcome: Literal["end", "timeout", "unreachable"]


@dataclass
class Log:
    """One incarnation as it was published, read back from the records."""

    incarnation: int
    first_seq: int | None = None
    closed: str | None = None
    entries: list[Batch | Gap] = field(default_factory=list)


class World:
    """An engine, a wire that loses and repeats, and the stream; every Gap is judged when it is told."""

    def __init__(self, buffer_steps: int, backlog_bytes: int) -> None:
        self.now = 1000.0
        self.engine = EngineModel(buffer_steps)
        self.wire: deque[Batch] = deque()
        self.delivered: list[Batch] = []
        self.answer: Answer | None = None
        self.omitted: set[Batch] = set()
        self.unanswered = 0
        self.most_unanswered = 0
        self.logs: list[Log] = []
        self.read_before = 0
        """Of the delivered batches, those that a connector took that was killed."""
        self.reached = False
        """Whether the last answer begins with the batch that was asked for."""
        self.untold = False
        """Whether an answer began behind the number that was asked for, though the buffer reached back.

        The engine had skipped that number, or answers out of order: nothing tells of a restart then.
        """
        self._settings = Connector(linger_seconds=0.0, backlog_bytes=backlog_bytes)
        self.stream = SourceStream(SOURCE, self._settings, lambda: self.now)

    # What the engine and the wire do.

    def publish(self, lost: bool) -> None:
        batch = self.engine.publish()
        if not lost:
            self.wire.append(batch)

    def restart(self, answer_survives: bool) -> None:
        self.engine.restart()
        if self.answer is not None and not answer_survives:
            self.answer = Answer([], "timeout")

    def deliver(self, count: int) -> None:
        messages = []
        while self.wire and len(messages) < count:
            batch = self.wire.popleft()
            self.delivered.append(batch)
            messages.append((b"", batch[1].to_bytes(8, "big"), self.engine.payloads[batch]))
        self.take(self.stream.feed_all(messages, self.now))

    def repeat(self, back: int) -> None:
        """The wire brings a batch again that came shortly before."""
        if back < len(self.delivered) - self.read_before and not self.wire:
            batch = self.delivered[-1 - back]
            if batch[0] == self.delivered[-1][0]:
                message = (b"", batch[1].to_bytes(8, "big"), self.engine.payloads[batch])
                self.take(self.stream.feed(message, self.now))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.take(self.stream.look(self.now, connected=True))

    def kill(self) -> None:
        """The connector is killed, with what is on its wire; the next one begins where the log ends."""
        self.wire.clear()
        self.answer = None
        self.read_before = len(self.delivered)
        resume = None
        if self.logs:
            log = self.logs[-1]
            # Notices behind the last batch are told again.
            while log.entries and isinstance(log.entries[-1], Gap):
                log.entries.pop()
            closed = log.closed is not None
            resume = StoredPosition(log.incarnation, closed=closed)
            if log.entries:
                last = log.entries[-1]
                assert not isinstance(last, Gap)
                resume = StoredPosition(
                    log.incarnation, last[1], fingerprint_of(self.engine.payloads[last]), closed
                )
            else:
                log.first_seq = None
        self.stream = SourceStream(SOURCE, self._settings, lambda: self.now, resume=resume)

    # What replays do.

    def ask(self, fault: str, where: int) -> None:
        ask = self.stream.ask
        if self.answer is not None or ask is None:
            return
        self.stream.asked()
        life, numbers = self.engine.life, [seq for seq in self.engine.buffer if seq >= ask.first]
        skipped = ask.first < self.engine.seq and (life, ask.first) not in self.engine.payloads
        self.untold |= skipped and self.can_replay(life, ask.first)
        kept = list(numbers)
        outcome: Literal["end", "timeout", "unreachable"] = "end"
        if fault == "holes":
            # What an engine drops from a full queue is in the middle; a repeated hole is where it was.
            kept = [seq for seq in numbers if seq == ask.first or (seq + where) % 4]
            self.omitted |= {(life, seq) for seq in set(numbers) - set(kept)}
        elif fault == "cut":
            kept, outcome = kept[: where + 1], "timeout"
        elif fault == "no end":
            outcome = "timeout"
        elif fault == "none":
            kept, outcome = [], "timeout"
        elif fault == "unreachable":
            kept, outcome = [], "unreachable"
        batches = [(seq, self.engine.payloads[life, seq]) for seq in kept]
        if fault == "disorder" and batches:
            batches.insert(where % len(batches), batches[where // 2 % len(batches)])
            batches.insert(where % len(batches), (MAX_SEQUENCE + where, b"\x90"))
            batches.append((ask.first, b"other"))
            # A batch behind a later one is left out.
            order = [seq for seq, _ in batches]
            self.omitted |= {
                (life, seq) for seq in kept if any(before > seq for before in order[: order.index(seq)])
            }
        self.reached = bool(batches) and batches[0][0] == ask.first
        self.untold |= not self.reached and ask.first in kept
        self.answer = Answer(batches, outcome)
        if fault in ("none", "unreachable"):
            self.unanswered += 1
            self.most_unanswered = max(self.most_unanswered, self.unanswered)
        else:
            self.unanswered = 0

    def progress(self, count: int) -> None:
        answer = self.answer
        if answer is None:
            return
        if answer.batches and not self.stream.enough:
            part, answer.batches = answer.batches[:count], answer.batches[count:]
            self.take(self.stream.replayed(part, self.now))
        elif self.stream.enough:
            self.answer = None
            self.take(self.stream.replay_ended("enough", self.now))
        else:
            self.answer = None
            self.take(self.stream.replay_ended(answer.outcome, self.now))

    def settle(self) -> None:
        """Nothing goes wrong any more: what is on the wire comes, every ask is answered."""
        self.deliver(len(self.wire))
        for _ in range(3):
            self.wait(100)
            for _ in range(300):
                if self.answer is None and self.stream.ask is None:
                    break
                self.ask("", 0)
                self.progress(10_000)
            else:
                raise AssertionError("the stream never has enough")

    # What is published.

    def take(self, records: list[EventsRecord]) -> None:
        for record in records:
            if not self.logs or self.logs[-1].incarnation != record.incarnation:
                assert not self.logs or record.incarnation > self.logs[-1].incarnation
                assert not self.logs or self.logs[-1].closed == "restarted"
                self.logs.append(Log(record.incarnation))
            log = self.logs[-1]
            assert log.closed is None
            for batch in record.batches:
                (event,) = batch.events
                if isinstance(event, Stored):
                    assert log.first_seq is not None
                    told = int.from_bytes(event.hashes[:HASH_BYTES], "big")
                    assert (told % LIFE) == batch.seq
                    log.entries.append(divmod(told, LIFE))
                elif isinstance(event, Opened):
                    assert (log.first_seq, log.entries) == (None, [])
                    assert event.complete == (event.first_seq == 0)
                    log.first_seq = event.first_seq
                elif isinstance(event, Gap):
                    assert event.reason != "replay_truncated" or not self.reached
                    log.entries.append(event)
                else:
                    assert isinstance(event, Closed)
                    log.closed = event.reason

    def can_replay(self, life: int, before: int) -> bool:
        """Whether the engine has kept anything of that life with a number smaller than `before`."""
        return life == self.engine.life and any(seq < before for seq in self.engine.buffer)

    def first_seen(self, life: int, seq: int) -> bool:
        """Whether this was the first batch of that life on the wire."""
        return [batch for batch in self.delivered if batch[0] == life][:1] == [(life, seq)]

    def can_be_missing(self, batch: Batch) -> bool:
        """Whether nobody could have had this batch of the engine, or a replay kept it from us."""
        life, seq = batch
        return (
            batch not in self.engine.payloads
            or batch in self.omitted
            or life < self.engine.life
            or seq not in self.engine.buffer
            or self.most_unanswered >= UNANSWERED_ASKS
        )


def continues_by_chance(log: Log, world: World) -> bool:
    """Whether a new life was first seen at the very number that the old one would have had next.

    Nothing tells the two apart if what came before was lost on the wire.
    """
    return any(
        before[0] != after[0] and world.first_seen(*after)
        for before, after in pairwise(log.entries)
        if not (isinstance(before, Gap) or isinstance(after, Gap))
    )


def check_order(log: Log, present: int) -> None:
    """Numbers grow, gaps are exactly what is between, and a life is not mixed with another unseen.

    Whether a batch behind a gap belongs to the life before it can only be asked while its engine lives.
    """
    due = log.first_seq
    before: Batch | None = None
    mixing = unverified = False
    for entry in log.entries:
        assert due is not None
        if isinstance(entry, Gap) and entry.reason == "unconfirmed":
            assert before is not None
            assert entry.first == entry.last == before[1]
            mixing = unverified = True
        elif isinstance(entry, Gap):
            assert entry.first == due
            assert entry.last >= entry.first
            due = entry.last + 1
            mixing = True
            unverified = entry.reason in ("replay_truncated", "replay_timeout")
        else:
            life, seq = entry
            assert seq == due
            assert before is None or life == before[0] or (mixing and (unverified or life < present))
            due = seq + 1
            before, mixing = entry, False


def check(world: World) -> None:
    """Compare what was published with the list of what the engine did."""
    if world.untold or any(continues_by_chance(log, world) for log in world.logs):
        return
    for log in world.logs:
        check_order(log, world.engine.life)
    engine = world.engine
    if not world.logs:
        assert not engine.buffer
        return
    restarts = sum(log.closed == "restarted" for log in world.logs)
    assert restarts <= engine.life, "no restart is seen that was none"
    log = world.logs[-1]
    present = {entry for entry in log.entries if not isinstance(entry, Gap)}
    newest = {batch for batch in engine.payloads if batch[0] == engine.life}
    if newest:
        assert log.closed is None
        for batch in newest - present:
            assert world.can_be_missing(batch), batch
        for entry in log.entries:
            if isinstance(entry, Gap) and world.most_unanswered < UNANSWERED_ASKS:
                assert entry.last < engine.seq, "nobody published that"


_ACTIONS = st.one_of(
    st.tuples(st.just("publish"), st.booleans()),
    st.tuples(st.just("publish"), st.just(False)),
    st.tuples(st.just("burst"), st.integers(1, 12)),
    st.tuples(st.just("skip")),
    st.tuples(st.just("restart"), st.booleans()),
    st.tuples(st.just("kill")),
    st.tuples(st.just("deliver"), st.integers(1, 6)),
    st.tuples(st.just("deliver"), st.just(1000)),
    st.tuples(st.just("repeat"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.sampled_from([0.01, 0.2, 3.0, 11.0, 70.0])),
    st.tuples(
        st.just("ask"),
        st.sampled_from(["", "", "", "holes", "cut", "no end", "none", "unreachable", "disorder"]),
        st.integers(0, 20),
    ),
    st.tuples(st.just("progress"), st.sampled_from([1, 2, 5, 1000])),
)


def run(world: World, actions: list[tuple[object, ...]]) -> None:
    for name, *values in actions:
        if name == "burst":
            for _ in range(int(str(values[0]))):
                world.publish(lost=False)
        elif name == "skip":
            world.engine.skip()
        else:
            getattr(world, str(name))(*values)


@settings(examples(1500), suppress_health_check=[HealthCheck.too_slow])
@given(
    actions=st.lists(_ACTIONS, max_size=60),
    # What is let go for want of room is known only to the engine, so then its buffer has to reach back.
    bounds=st.sampled_from(
        [(1, 1 << 20), (3, 1 << 20), (10, 1 << 20), (WHOLE_LIFE, 1 << 20), (WHOLE_LIFE, 8_000)]
    ),
)
def test_what_is_published_is_what_the_engine_did_whatever_goes_wrong(
    actions: list[tuple[object, ...]], bounds: tuple[int, int]
) -> None:
    world = World(*bounds)
    run(world, actions)
    world.settle()
    check(world)
