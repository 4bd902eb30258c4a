"""What a stream asks for and publishes in each way in which something can be missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec
import pytest

from connectors.order.asks import MAX_DISORDERED, Ask
from connectors.order.backlog import Backlog, BacklogBudget, Message
from connectors.order.pacing import UNANSWERED
from connectors.order.recovery import MAX_HOLES
from connectors.order.sequence import RECENT_BATCHES, SequencePosition, StoredPosition, fingerprint_of
from connectors.order.stream import SourceStream
from connectors.sources import Source
from schemas.events import Closed, Event, EventsRecord, Gap, Opened, Undecodable
from schemas.reasons import ReplayOutcome
from schemas.settings import Connector

SOURCE = Source("r", 0, "m", "t", "d", "tcp://127.0.0.1:1", replay_endpoint="tcp://127.0.0.1:2")
OPENED = Opened(0, True, SOURCE.endpoint)
RESTARTED = Closed("restarted")
Entry = int | Event
"""A batch that was published, as its number, or a notice."""


def payload(seq: int, life: int = 0) -> bytes:
    stored = ["BlockStored", [life * 1000 + seq], None, [1, 2], 2, None, "GPU", None]
    return msgspec.msgpack.encode([1_700_000_000.0 + life * 1e6 + seq, [stored], 0])


class Driver:
    """A stream, a clock, and everything that was published."""

    def __init__(self, resume: StoredPosition | None = None, **settings: object) -> None:
        self.now = 1000.0
        self.published: list[Entry] = []
        self.lives: list[int] = []
        self.roles: list[str] = []
        self.replayed: set[int] = set()
        options = Connector(linger_seconds=0.0, **settings)  # type: ignore[arg-type]
        self.stream = SourceStream(SOURCE, options, lambda: self.now, resume=resume)

    def live(self, *seqs: int, life: int = 0) -> None:
        self.raw(*((b"", seq.to_bytes(8, "big"), payload(seq, life)) for seq in seqs))

    def raw(self, *frames: Sequence[bytes]) -> None:
        self._take(self.stream.feed_all(frames, self.now))

    def answer(self, seqs: Iterable[int], life: int = 0, outcome: ReplayOutcome = "end") -> int:
        """Answer the ask with these batches; return what it began with."""
        first = self.ask()
        self.part(seqs, life)
        self.end(outcome)
        return first

    def ask(self) -> int:
        ask = self.stream.ask
        assert ask is not None, "nothing is asked for"
        self.stream.asked()
        assert self.stream.ask is None, "one at a time"
        return ask.first

    def part(self, seqs: Iterable[int], life: int = 0) -> None:
        self._take(self.stream.replayed([(seq, payload(seq, life)) for seq in seqs], self.now))

    def end(self, outcome: ReplayOutcome = "end") -> None:
        self._take(self.stream.replay_ended("enough" if self.stream.enough else outcome, self.now))

    def wait(self, seconds: float, connected: bool = True) -> None:
        self.now += seconds
        self._take(self.stream.look(self.now, connected=connected))

    def overtaken(self, by: StoredPosition) -> None:
        self._take(self.stream.overtaken(by))

    def new(self) -> list[Entry]:
        """What was published since the last call."""
        new, self.published = self.published, []
        return new

    def caught_up(self, *seqs: int, life: int = 0) -> Driver:
        """Begin with these, and nothing missing."""
        self.answer(seqs, life)
        self.new()
        assert self.stream.ask is None
        return self

    def _take(self, records: list[EventsRecord]) -> None:
        for record in records:
            if record.incarnation not in self.lives:
                self.lives.append(record.incarnation)
            if record.role not in self.roles:
                self.roles.append(record.role)
            for batch in record.batches:
                self.published += batch.events if batch.seq is None else [batch.seq]
                if batch.replayed and batch.seq is not None:
                    self.replayed.add(batch.seq)


def print_of(seq: int, life: int = 0) -> int:
    return fingerprint_of(payload(seq, life))


def test_first_contact_asks_from_0_though_nothing_came() -> None:
    driver = Driver()
    assert driver.answer(range(3)) == 0
    assert driver.new() == [OPENED, 0, 1, 2]
    assert driver.stream.ask is None


def test_first_contact_with_an_engine_that_has_done_nothing() -> None:
    driver = Driver()
    driver.answer([])
    assert (driver.new(), driver.stream.ask) == ([], None)
    driver.live(0, 1)
    assert driver.new() == [OPENED, 0, 1]


def test_live_batches_wait_for_the_beginning_and_are_merged_with_it() -> None:
    driver = Driver()
    driver.live(3, 4, 6)
    assert driver.new() == []
    driver.ask()
    driver.part([0, 1, 2, 3])
    driver.live(7)
    driver.part([5, 6, 7])
    assert driver.new() == [OPENED, 0, 1, 2, 3, 4, 5, 6, 7], "4 came live only"
    driver.end()
    driver.live(8)
    assert driver.new() == [8]
    assert driver.stream.counts.duplicates == 3


def test_gap_is_asked_for_from_the_last_batch_on() -> None:
    driver = Driver().caught_up(0, 1, 2)
    driver.live(5, 6)
    assert driver.stream.ask == Ask(2, urgent=True)
    driver.answer(range(2, 7))
    assert driver.new() == [3, 4, 5, 6]
    assert driver.replayed >= {3, 4}
    assert driver.stream.counts.gaps_by_reason.total() == 0


def test_ask_that_was_sent_before_something_was_missed_makes_nothing_final() -> None:
    driver = Driver().caught_up(0, 1, 2)
    driver.wait(11)
    assert driver.ask() == 2
    driver.live(5)
    driver.part([2])
    driver.end()
    driver.now += 1
    assert driver.answer(range(2, 6)) == 2
    assert driver.new() == [3, 4, 5]


def test_hole_is_final_when_two_answers_show_it() -> None:
    driver = Driver().caught_up(0)
    driver.live(9)
    assert driver.answer([0, 1, 2, 5, 6, 9]) == 0
    assert driver.new() == [1, 2]
    assert driver.answer([2, 3, 5, 6, 9]) == 2
    assert driver.new() == [3]
    assert driver.answer([3, 5, 6, 9]) == 3
    assert driver.new() == [Gap(4, 4, "replay_holes"), 5, 6]
    assert driver.answer([6, 9]) == 6
    assert driver.new() == [Gap(7, 8, "replay_holes"), 9]
    assert driver.stream.ask is None


def test_answers_full_of_holes_are_asked_for_again_a_bounded_number_of_times() -> None:
    driver = Driver().caught_up(0)
    numbers = range(0, 6 * MAX_HOLES, 2)
    driver.live(numbers[-1])
    asks = 0
    while driver.stream.ask is not None:
        first = driver.stream.ask.first
        driver.answer(seq for seq in numbers if seq >= first)
        asks += 1
        driver.now += 60
    assert asks <= MAX_HOLES + 2
    assert driver.new() == [
        entry for seq in numbers[1:] for entry in (Gap(seq - 1, seq - 1, "replay_holes"), seq)
    ]


def test_buffer_that_does_not_reach_back() -> None:
    driver = Driver().caught_up(0, 1)
    driver.live(9)
    driver.answer([6, 7, 8, 9])
    assert driver.new() == [Gap(2, 5, "replay_truncated"), 6, 7, 8, 9]
    assert len(driver.lives) == 1


def test_missing_end_is_asked_behind_until_nothing_comes() -> None:
    driver = Driver()
    driver.answer(range(5), outcome="timeout")
    assert driver.new() == [OPENED, 0, 1, 2, 3, 4]
    assert driver.answer([4], outcome="timeout") == 4
    assert driver.stream.ask is None
    driver.live(5)
    assert driver.new() == [5]


def test_engine_that_never_says_end_is_asked_for_as_long_as_batches_get_lost() -> None:
    driver = Driver().caught_up(0)
    driver.live(2)
    for last in range(2, 2 + 10 * MAX_HOLES, 2):
        assert driver.ask() == last - 2
        driver.part(range(last - 2, last + 1))
        driver.live(last + 2)
        driver.end("timeout")
        assert driver.new() == [last - 1, last]
    assert driver.stream.counts.gaps_by_reason.total() == 0


def test_engine_that_does_not_answer_is_waited_for_twice_and_then_now_and_again() -> None:
    driver = Driver().caught_up(0)
    driver.live(3)
    driver.answer([], outcome="timeout")
    assert driver.new() == []
    driver.answer([], outcome="timeout")
    assert driver.new() == [Gap(1, 2, "replay_timeout"), 3]
    driver.live(5, 6)
    assert driver.new() == [Gap(4, 4, "replay_timeout"), 5, 6]
    assert driver.stream.ask is None
    driver.now += 100
    driver.live(8)
    assert driver.new() == []
    driver.answer(range(6, 9))
    assert driver.new() == [7, 8]


def test_tail_is_asked_for_when_the_stream_is_quiet() -> None:
    driver = Driver().caught_up(0, 1)
    driver.wait(9)
    assert driver.stream.ask is None
    driver.wait(2)
    assert driver.stream.ask == Ask(1, urgent=False)
    assert driver.answer([1, 2, 3]) == 1
    assert driver.new() == [2, 3]
    driver.wait(9)
    assert driver.stream.ask is None


@pytest.mark.parametrize("unanswered", [3, 10])
def test_tail_is_asked_for_within_a_minute_of_an_engine_that_did_not_answer(unanswered: int) -> None:
    driver = Driver(StoredPosition(77, 0, print_of(0)))
    driver.live(1)
    for _ in range(unanswered):
        while driver.stream.ask is None:
            driver.wait(1)
        driver.answer([], outcome="timeout")
    confirmed_by_nobody = Gap(0, 0, "unconfirmed")
    assert driver.new() == [confirmed_by_nobody, 1], "2 is lost on its way, and nothing comes behind it"
    deaf_at = driver.now
    while driver.stream.ask is None:
        driver.wait(1)
    assert UNANSWERED.pause(3) <= driver.now - deaf_at <= UNANSWERED.longest
    assert driver.answer([1, 2]) == 1
    assert driver.new() == [2]


def test_a_clock_that_was_set_back_makes_no_tail_silence_or_pause_longer() -> None:
    driver = Driver().caught_up(0, 1)
    driver.wait(-1_000)
    driver.wait(11)
    assert driver.answer([1, 2]) == 1
    assert driver.new() == [2]
    driver.wait(11)
    driver.answer([], outcome="timeout")
    driver.wait(-1_000)
    driver.wait(11)
    assert driver.stream.ask is not None, "an ask that nobody answered is followed by a pause"
    driver.wait(-1_000, connected=False)
    driver.wait(301, connected=False)
    assert driver.new() == [Closed("silent")]


def test_no_batch_was_received_in_the_future_of_a_clock_that_was_set_back() -> None:
    driver = Driver().caught_up(0, 1)
    driver.wait(-1_000)
    assert driver.stream.counts.last_received_at == driver.now


def test_live_batches_do_not_wait_for_the_tail() -> None:
    driver = Driver().caught_up(0)
    driver.wait(11)
    driver.ask()
    driver.live(1, 2)
    assert driver.new() == [1, 2]
    driver.part([0, 1, 2, 3])
    assert driver.new() == [3]
    driver.end()
    driver.live(3, 4)
    assert driver.new() == [4]
    assert driver.stream.counts.duplicates == 1


def test_restart_at_0_is_followed_at_once() -> None:
    driver = Driver().caught_up(0, 1)
    driver.live(0, 1, life=1)
    assert driver.new() == [RESTARTED, OPENED, 0, 1]
    assert len(driver.lives) == 2
    assert driver.lives[0] < driver.lives[1]


def test_restart_further_on_is_asked_for_from_0() -> None:
    driver = Driver().caught_up(*range(5))
    driver.live(3, life=1)
    assert driver.answer([4], life=1) == 4
    assert driver.new() == [RESTARTED]
    assert driver.answer(range(5), life=1) == 0
    assert driver.new() == [OPENED, 0, 1, 2, 3, 4]


def test_restart_that_looks_like_a_gap() -> None:
    driver = Driver().caught_up(0, 1, 2)
    driver.live(7, life=1)
    assert driver.answer(range(2, 8), life=1) == 2
    assert driver.answer(range(8), life=1) == 0
    assert driver.new() == [RESTARTED, OPENED, *range(8)]


def test_empty_answer_of_an_engine_that_keeps_batches_is_a_restart() -> None:
    driver = Driver().caught_up(0, 1, 2)
    driver.wait(11)
    assert driver.answer([]) == 2
    assert driver.new() == [RESTARTED]
    assert driver.answer([]) == 0
    driver.live(0, life=1)
    assert driver.new() == [OPENED, 0]


def test_empty_answer_of_an_engine_without_a_buffer_says_nothing() -> None:
    driver = Driver()
    driver.answer([])
    driver.live(0, 1)
    driver.wait(11)
    assert driver.answer([]) == 1
    assert driver.answer([]) == 0
    driver.live(2)
    assert driver.new() == [OPENED, 0, 1, 2]


def test_message_of_a_past_life_out_of_a_slow_queue_is_left_out() -> None:
    driver = Driver().caught_up(*range(300))
    driver.live(0, 1, 2, life=1)
    driver.new()
    driver.live(301, life=0)
    assert driver.new() == []
    driver.answer([2, 3], life=1)
    driver.live(4, life=1)
    assert driver.new() == [3, 4]
    assert driver.stream.counts.left_out == {"past_life": 1}
    assert driver.stream.counts.gaps_by_reason.total() == 0


def test_live_queue_slower_than_a_short_buffer_is_no_restart() -> None:
    driver = Driver().caught_up(*range(100))
    driver.live(150)
    assert driver.answer(range(500, 800)) == 99
    told = [Gap(100, 149, "replay_truncated"), 150, Gap(151, 499, "replay_truncated"), *range(500, 800)]
    assert driver.new() == told
    # Live messages of the time before, out of a queue; the engine has since dropped what they are asked by.
    driver.live(200, 201, 202)
    assert driver.ask() == 799
    driver.live(210)
    driver.part(range(900, 1000))
    driver.live(220)
    driver.end()
    assert driver.new() == [Gap(800, 899, "replay_truncated"), *range(900, 1000)]
    driver.answer(range(999, 1001))
    driver.live(230, 1001)
    driver.answer([1000, 1001])
    assert driver.new() == [1000, 1001]
    assert driver.stream.counts.left_out == {"past_life": 6}
    assert len(driver.lives) == 1


def test_late_messages_of_the_life_that_ended_are_not_of_the_next() -> None:
    driver = Driver()
    driver.answer(range(4, 6))
    assert driver.new() == [Opened(4, False, SOURCE.endpoint), 4, 5]
    driver.live(2, 5)
    driver.answer([])
    driver.answer(range(2), life=1)
    assert driver.new() == [RESTARTED, OPENED, 0, 1]


def test_message_of_a_past_life_is_left_out_though_the_clock_was_set_back() -> None:
    driver = Driver().caught_up(0, 1, life=1)
    driver.wait(11)
    driver.answer([])
    driver.answer([0])
    assert driver.new() == [RESTARTED, OPENED, 0]
    driver.live(6, 7, life=1)
    driver.answer([0])
    driver.wait(2)
    assert driver.answer([0]) == 0, "that it was right to leave them out is seen by another answer"
    driver.live(1)
    assert driver.new() == [1]
    assert driver.stream.counts.left_out == {"past_life": 2}
    assert driver.stream.counts.gaps_by_reason.total() == 0


def test_messages_that_come_after_they_were_given_up_begin_no_session_though_nobody_answers() -> None:
    driver = Driver().caught_up(0)
    driver.live(6)
    driver.answer([5, 6, 7])
    assert driver.new() == [Gap(1, 4, "replay_truncated"), 5, 6, 7]
    driver.live(1, 2, 3, 4, 5, 6, 7)
    for _ in range(2):
        driver.wait(70)
        driver.answer([], outcome="unreachable")
    driver.live(8)
    assert driver.new() == [8]
    assert driver.stream.counts.left_out == {"too_late": 4}
    assert driver.stream.counts.restarts == 0


def test_engine_whose_answers_lag_behind_loses_its_messages_once_and_has_them_back() -> None:
    driver = Driver().caught_up(0, 1, life=1)
    driver.wait(11)
    driver.answer([])
    driver.answer([0])
    driver.new()
    driver.live(3)
    driver.answer([0])
    assert driver.new() == []
    driver.live(5)
    driver.wait(2)
    driver.answer([0, 1, 2, 3])
    assert driver.new() == [1, 2, 3]
    driver.wait(2)
    driver.answer([3])
    assert driver.new() == [Gap(4, 4, "replay_holes"), 5]


def test_restart_is_seen_by_the_clock_though_the_buffer_does_not_reach_back() -> None:
    driver = Driver().caught_up(*range(100))
    driver.live(20, life=1)
    driver.answer(range(500, 503), life=1)
    driver.answer(range(500, 503), life=1)
    assert len(driver.lives) == 2


def test_late_copies_of_replayed_batches_are_known_however_many() -> None:
    driver = Driver()
    driver.live(*range(1, 3))
    driver.answer(range(20 * RECENT_BATCHES))
    driver.live(*range(3, 20 * RECENT_BATCHES))
    assert driver.stream.counts.duplicates == 20 * RECENT_BATCHES - 1
    assert driver.stream.counts.restarts == 0
    assert driver.new() == [OPENED, *range(20 * RECENT_BATCHES)]


@pytest.mark.parametrize("live", [[], [8, 9]])
def test_resume_in_the_same_life(live: list[int]) -> None:
    driver = Driver(StoredPosition(77, 5, print_of(5)))
    driver.live(*live)
    assert driver.new() == []
    assert driver.answer(range(5, 10)) == 5
    assert driver.new() == [6, 7, 8, 9]
    assert driver.lives == [77]


@pytest.mark.parametrize("answer", [[], [5, 6, 7]])
def test_resume_after_a_restart(answer: list[int]) -> None:
    driver = Driver(StoredPosition(77, 5, print_of(5)))
    assert driver.answer(answer, life=1) == 5
    assert driver.new() == [RESTARTED]
    assert driver.answer(range(8), life=1) == 0
    assert driver.new() == [OPENED, *range(8)]
    assert driver.lives[0] == 77 < driver.lives[1]


@pytest.mark.parametrize("life", [0, 1])
def test_resume_behind_the_buffer_says_what_is_missing_whatever_the_life(life: int) -> None:
    # Batch 5 has left the buffer: of a life that goes on and of another one the same comes.
    driver = Driver(StoredPosition(77, 5, print_of(5)))
    driver.live(41, life=life)
    assert driver.answer(range(30, 42), life=life) == 5
    assert driver.new() == [Gap(6, 29, "replay_truncated"), *range(30, 42)]
    assert driver.lives == [77]


def test_another_connector_that_opened_a_later_incarnation_is_followed() -> None:
    driver = Driver(StoredPosition(77, 5, print_of(5)))
    driver.caught_up(*range(5, 20))
    driver.overtaken(StoredPosition(99, 8, print_of(8)))
    driver.live(20)
    assert driver.new() == [], "nothing before it is known what the log lacks"
    assert driver.answer(range(8, 21)) == 8
    assert driver.new() == [*range(9, 21)]
    driver.live(21)
    assert (driver.new(), driver.lives) == ([21], [77, 99])
    driver.overtaken(StoredPosition(98, 3, print_of(3)))
    driver.live(22)
    assert (driver.new(), driver.lives) == ([22], [77, 99]), "an earlier one is nobody's"


UNCONFIRMED = Gap(5, 5, "unconfirmed")


@pytest.mark.parametrize("life", [0, 1])
@pytest.mark.parametrize(
    ("live", "answer"), [([], range(6, 9)), ([8], range(6, 9)), ([6, 7, 8], range(8, 9))]
)
def test_resume_where_nothing_is_missing_but_what_would_confirm_it(
    life: int, live: list[int], answer: range
) -> None:
    driver = Driver(StoredPosition(77, 5, print_of(5)))
    driver.live(*live, life=life)
    assert driver.answer(answer, life=life) == 5
    assert driver.new() == [UNCONFIRMED, 6, 7, 8]
    assert driver.lives == [77]
    assert (driver.stream.counts.gaps_by_reason, driver.stream.counts.lost_batches) == ({"unconfirmed": 1}, 0)
    driver.wait(11)
    assert driver.answer([8], life=life) == 8
    driver.live(9, life=life)
    assert driver.new() == [9], "what was doubted is confirmed from there on"


def test_a_doubt_is_told_once_a_gap_tells_it_as_well() -> None:
    driver = Driver(StoredPosition(77, 5, print_of(5)))
    driver.live(6, 7)
    assert driver.answer(range(10, 12)) == 5
    assert driver.new() == [UNCONFIRMED, 6, 7, Gap(8, 9, "replay_truncated"), 10, 11]


def test_live_batches_confirm_what_a_short_buffer_no_longer_has() -> None:
    driver = Driver().caught_up(*range(6))
    driver.wait(11)
    assert driver.ask() == 5
    driver.live(6, 7)
    driver.part([7])
    driver.end()
    driver.live(8)
    assert driver.new() == [6, 7, 8]


@pytest.mark.parametrize("answer", [range(1), range(3), range(1, 3)])
def test_a_first_batch_that_overtakes_the_answer_to_the_first_ask_is_no_doubt(answer: range) -> None:
    driver = Driver()
    assert driver.ask() == 0
    driver.live(0)
    driver.part(answer)
    driver.end()
    driver.live(*range(answer.stop, 4))
    assert driver.new() == [OPENED, 0, 1, 2, 3]
    assert driver.stream.counts.gaps_by_reason == {}


def test_the_unseen_end_of_an_idle_stream_is_in_doubt_where_its_beginning_has_left_the_buffer() -> None:
    driver = Driver().caught_up(*range(6))
    driver.wait(11)
    assert driver.answer([6, 7]) == 5
    assert driver.new() == [UNCONFIRMED, 6, 7]


def test_a_doubt_ends_with_the_life_that_it_is_about() -> None:
    driver = Driver(StoredPosition(77, 5, print_of(5)))
    driver.ask()
    driver.raw((b"", (7).to_bytes(8, "big"), b"?"))
    driver._take(driver.stream.replayed([(7, b"?")], driver.now))
    driver.end()
    driver.new()
    driver.wait(11)
    driver.answer([], life=1)
    assert driver.answer(range(2), life=1) == 0
    assert driver.new() == [RESTARTED, OPENED, 0, 1]


def test_without_replay_what_another_connector_left_is_a_gap() -> None:
    driver = Driver()
    driver.stream.readdress(replace(SOURCE, replay_endpoint=None))
    driver.live(0, 1, 2)
    driver.overtaken(StoredPosition(10**18, 1, print_of(1)))
    driver.live(3)
    assert driver.new() == [OPENED, 0, 1, 2, Gap(2, 2, "replay_not_configured"), 3]
    driver.overtaken(StoredPosition(2 * 10**18, 1, print_of(1), closed=True))
    driver.live(4)
    assert driver.new() == [Opened(4, False, SOURCE.endpoint), 4]


def test_resume_of_an_engine_that_does_not_answer_goes_on_where_it_can() -> None:
    driver = Driver(StoredPosition(77, 5, print_of(5)))
    driver.live(6, 8)
    for _ in range(2):
        driver.answer([], outcome="unreachable")
    assert driver.new() == [UNCONFIRMED, 6, Gap(7, 7, "replay_timeout"), 8]
    assert driver.lives == [77]


def test_resume_of_a_closed_incarnation_begins_a_greater_one_although_the_clock_was_set_back() -> None:
    driver = Driver(StoredPosition(10**18, 5, print_of(5), closed=True))
    assert driver.answer(range(2)) == 0
    assert driver.new() == [OPENED, 0, 1]
    assert driver.lives == [10**18 + 1]


def test_backlog_is_bounded_and_what_does_not_fit_is_asked_for_again() -> None:
    driver = Driver(backlog_bytes=1 << 16).caught_up(0)
    driver.live(2)
    assert driver.ask() == 0
    driver.live(*range(3, 500))
    held = 498 - driver.stream.counts.left_out["backlog"]
    assert 20 < held < 100
    assert driver.stream.counts.left_out.keys() == {"backlog"}
    driver.part(range(3))
    driver.end()
    assert driver.new() == list(range(1, held + 2))
    assert driver.answer(range(held + 1, 500)) == held + 1
    assert driver.new() == list(range(held + 2, 500))
    assert driver.stream.ask is None


def test_a_stream_that_is_closed_gives_back_what_waited() -> None:
    budget = BacklogBudget(10_000)
    stream = SourceStream(SOURCE, Connector(), lambda: 1000.0, budget=budget)
    for seq in (1, 2):
        stream.feed((b"", seq.to_bytes(8, "big"), payload(seq)), 1000.0)
    assert budget.used > 0
    stream.close("removed")
    assert budget.used == 0
    assert stream.counts.left_out == {"past_life": 2}


def test_budget_is_shared_and_given_back() -> None:
    budget = BacklogBudget(10_000)
    backlogs = [Backlog(budget) for _ in range(8)]
    message = Message(1, 1, bytes(1000), 0.0)
    added = [backlog.add(message) for _ in range(3) for backlog in backlogs]
    assert budget.used <= 10_000 + 8 * 1300, "the first one of each always fits"
    assert not all(added)
    for backlog in backlogs:
        while backlog:
            assert backlog.pop() is message
    assert budget.used == 0


def test_restart_within_a_backlog() -> None:
    backlog = Backlog(BacklogBudget(1 << 20))
    for seq, life in ((5, 0), (6, 0), (5, 0), (0, 1), (1, 1), (0, 2), (1, 2)):
        backlog.add(Message(seq, print_of(seq, life), b"", 0.0))
    assert backlog.restart(None, 3) is None, "only repeated"
    assert backlog.restart(None, 4) == 3
    assert backlog.restart(None, 7) == 5
    assert backlog.restart(SequencePosition(5, print_of(5)), 3) is None
    assert backlog.restart(SequencePosition(7, print_of(7)), 1) == 0


def test_disordered_and_impossible_numbers_cost_themselves() -> None:
    driver = Driver()
    driver.ask()
    batches = [(seq, payload(seq)) for seq in (0, 1, 0, 1, 2)]
    wild = [(1 << 63, payload(3)), (-1, b""), (2**64 - 1, b"x")]
    driver._take(driver.stream.replayed([*batches, *wild, (3, payload(3))], driver.now))
    driver.end()
    assert driver.new() == [OPENED, 0, 1, 2, 3]
    assert driver.stream.counts.left_out == {"disordered": 5}


def test_answer_that_repeats_itself_for_ever_is_left() -> None:
    driver = Driver()
    driver.ask()
    for _ in range(MAX_DISORDERED + 2):
        driver.part([0])
    assert driver.stream.enough


def test_numbers_that_change_in_the_middle_of_an_answer() -> None:
    """The engine restarted while it answered, and whatever stands between sent what both had."""
    driver = Driver().caught_up(*range(5))
    driver.live(9)
    driver.ask()
    driver.part([4, 5, 6])
    driver.part([0, 1], life=1)
    driver.end("timeout")
    assert driver.new() == [5, 6]
    assert driver.answer([6], life=1) == 6
    assert driver.answer(range(9), life=1) == 0
    assert driver.new() == [RESTARTED, OPENED, *range(9)]


def test_nobody_understands_an_answered_batch() -> None:
    driver = Driver()
    driver.ask()
    good = {seq: payload(seq) for seq in range(6)}
    good[2] = b"\xc1"
    driver._take(driver.stream.replayed([*good.items(), (1 << 40, b"\xc1")], driver.now))
    driver.end()
    assert driver.new() == [OPENED, 0, 1, Undecodable("not_msgpack", 2), 3, 4, 5]
    driver.wait(11)
    driver.answer([5])
    driver.live(6)
    assert driver.new() == [6]


def test_nobody_understands_a_live_batch_far_ahead_while_others_wait() -> None:
    driver = Driver().caught_up(0)
    driver.live(2)
    driver.raw((b"", (700).to_bytes(8, "big"), b"\xc1"))
    driver.live(3)
    driver.answer([0, 1, 2, 3])
    assert driver.new() == [1, 2, 3, Undecodable("not_msgpack", 700)]
    driver.live(4)
    assert driver.new() == [4]


def test_silence_ends_the_incarnation_and_what_comes_back_is_another() -> None:
    driver = Driver().caught_up(0, 1)
    driver.wait(299, connected=False)
    assert driver.new() == []
    driver.wait(2, connected=False)
    assert driver.new() == [Closed("silent")]
    driver.wait(1000, connected=False)
    assert driver.new() == []
    assert driver.answer([0, 1, 2]) == 0
    assert driver.new() == [OPENED, 0, 1, 2]
    assert len(driver.lives) == 2


def test_idle_is_not_silent() -> None:
    connected = Driver().caught_up(0)
    answering = Driver().caught_up(0)
    for _ in range(100):
        connected.wait(11)
        answering.wait(11, connected=False)
        answering.answer([0])
    assert connected.new() == answering.new() == []


def test_asks_that_bring_nothing_pause_longer_and_longer() -> None:
    """Stream and replays of two engines behind one address."""
    driver = Driver().caught_up(*range(900))
    asks = 0
    for step in range(600):
        driver.live(100 + step, life=1)
        driver.now += 0.05
        if driver.stream.ask is not None:
            driver.answer([899])
            asks += 1
    assert asks < 20
    assert driver.new() == []


def test_no_replay_after_the_address_was_taken_away() -> None:
    driver = Driver().caught_up(0)
    driver.live(2)
    driver.stream.readdress(Source("r", 0, "m", "t", "d", "tcp://127.0.0.1:1"))
    assert driver.stream.ask is None
    driver.live(3)
    assert driver.new() == [Gap(1, 1, "replay_not_configured"), 2, 3]


def test_another_role_is_told_from_the_next_record_on() -> None:
    driver = Driver().caught_up(0)
    assert driver.stream.source.role == ""
    driver.stream.readdress(replace(SOURCE, role="decode"))
    driver.live(1)
    assert driver.new() == [1]
    assert driver.roles == ["", "decode"]


def test_position_and_settled_follow() -> None:
    driver = Driver()
    assert not driver.stream.settled
    driver.caught_up(0, 1)
    assert driver.stream.settled
    driver.live(3)
    assert not driver.stream.settled
    driver.answer([], outcome="timeout")
    assert driver.stream.settled, "the engine does not answer"
    driver.answer([1, 2, 3])
    assert driver.stream.settled
    position = driver.stream.position
    assert position is not None
    assert (position.last, position.fingerprint) == (3, print_of(3))


def test_an_answer_that_was_cut_for_its_length_goes_on_where_it_ended() -> None:
    driver = Driver()
    assert driver.answer(range(5), outcome="endless") == 0
    assert driver.answer(range(4, 8)) == 4
    assert driver.new() == [OPENED, *range(8)]
    assert driver.stream.counts.asks == {"endless": 1, "end": 1}
    assert driver.stream.ask is None


def test_an_answer_that_nobody_asked_for_changes_nothing() -> None:
    driver = Driver().caught_up(0)
    driver.end()
    assert driver.new() == []
    driver.live(1)
    assert driver.new() == [1]


def test_a_probe_shows_whether_the_engine_still_keeps_what_the_log_has() -> None:
    """An engine that never answered anything has nothing from the last batch on: does it keep any at all?"""
    for life, entries in ((0, []), (1, [RESTARTED, OPENED, 0, 1])):
        driver = Driver().caught_up()
        driver.live(0, 1)
        assert driver.new() == [OPENED, 0, 1]
        driver.wait(60)
        driver.live(1)
        first = driver.answer([])
        assert first == 1
        assert driver.answer([0, 1], life=life) == 0
        if life:
            driver.answer([0, 1], life=life)
        assert driver.new() == entries
