"""Notes in the store beside writers and recomputations: every row that is there is noted, or recomputed."""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime, timedelta, timezone
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.clickhouse.due_minutes import RENEWED_AFTER, DueMinutes, Minute

START = datetime(2026, 3, 4, 12, tzinfo=timezone.utc)
MINUTES = [Minute("flow", START + timedelta(minutes=number)) for number in range(3)]

Outcome = Literal["ok", "fails", "lost"]
"""Of a statement; `lost` is that the store does what it says, and the answer does not arrive."""
Steps = Generator[None, Outcome, None]
"""Waits at each yield for the outcome of its statement."""

TICK = RENEWED_AFTER + 1.0
GIVEN_UP = 600.0


class Store:
    """What stands in the store: notes, and how many writes of a minute are there and are recomputed."""

    def __init__(self) -> None:
        self.now = 0.0
        self.noted: dict[Minute, int] = {}
        self.noted_at: dict[Minute, float] = {}
        self.done: dict[Minute, int] = {}
        self.writes = dict.fromkeys(MINUTES, 0)
        self.recomputed = dict.fromkeys(MINUTES, 0)

    def is_due(self, minute: Minute) -> bool:
        return self.noted.get(minute, 0) > self.done.get(minute, 0)

    def note(self, notes: dict[Minute, int]) -> None:
        self.noted |= {minute: max(number, self.noted.get(minute, 0)) for minute, number in notes.items()}
        self.noted_at |= dict.fromkeys(notes, self.now)

    def end(self, notes: dict[Minute, int]) -> None:
        self.done |= {minute: max(number, self.done.get(minute, 0)) for minute, number in notes.items()}

    def write(self, minutes: set[Minute]) -> None:
        for minute in minutes:
            self.writes[minute] += 1

    def recompute(self, minutes: set[Minute]) -> None:
        self.recomputed |= {minute: self.writes[minute] for minute in minutes}

    def check(self) -> None:
        for minute in MINUTES:
            assert self.is_due(minute) or self.writes[minute] == self.recomputed[minute]


def writer(due: DueMinutes, store: Store, minutes: set[Minute]) -> Steps:
    """Note minutes and write rows of them, again and again until both is done."""
    announced = False
    outcome: Outcome = "fails"
    while outcome != "ok":
        if not announced:
            due.begin_write(minutes)
        began = store.now
        notes = due.to_note(minutes, began)
        outcome = (yield) if notes else "ok"
        if outcome != "fails":
            store.note(notes)
        if outcome == "ok":
            announced = True
            due.noted(notes, began)
            outcome = yield
            if outcome != "fails":
                store.write(minutes)
        elif not announced:
            due.cancel_write(minutes)
        if outcome != "ok":
            yield
    due.end_write(minutes)


def recomputation(due: DueMinutes, store: Store) -> Steps:
    taken, over = due.pop_due()
    outcome = yield
    if outcome != "fails":
        store.recompute(taken)
    if outcome == "ok":
        outcome = yield
        if outcome != "fails":
            store.end(over)
    if outcome == "ok":
        due.done(over)
    else:
        due.add(taken)


def other_worker(store: Store) -> Steps:
    """Recompute what is due without knowing of this worker, and give up its old notes."""
    left = {minute for minute in MINUTES if store.is_due(minute)}
    old = {minute: store.noted[minute] for minute in left if store.now - store.noted_at[minute] > GIVEN_UP}
    yield
    store.recompute(left)
    yield
    store.end(old)


WRITERS = {"one writer", "writer beside it"}
steps = st.lists(
    st.tuples(
        st.sampled_from(["one writer", "writer beside it", "recomputation", "other worker", "time"]),
        st.sampled_from(["ok", "ok", "ok", "fails", "lost"]),
        st.sets(st.sampled_from(MINUTES), min_size=1),
    ),
    min_size=20,
    max_size=80,
)


@given(steps)
def test_every_row_is_recomputed_or_noted(walk: list[tuple[str, Outcome, set[Minute]]]) -> None:
    due, store = DueMinutes(), Store()
    running: dict[str, Steps] = {}

    def go_on(who: str, outcome: Outcome) -> None:
        try:
            running[who].send(outcome)
        except StopIteration:
            del running[who]
        store.check()

    for who, outcome, minutes in walk:
        if who in running:
            go_on(who, outcome)
        elif who == "time":
            # No statement takes so long as this.
            for one in WRITERS & running.keys():
                go_on(one, "fails")
            store.now += TICK
        else:
            begun = (
                writer(due, store, minutes)
                if who in WRITERS
                else recomputation(due, store)
                if who == "recomputation"
                else other_worker(store)
            )
            next(begun)
            running[who] = begun
    while running:
        go_on(min(running), "ok")
    last = recomputation(due, store)
    next(last)
    last.send("ok")
    with pytest.raises(StopIteration):
        last.send("ok")
    assert not any(map(store.is_due, MINUTES))
    assert store.recomputed == store.writes


def noted(due: DueMinutes, minute: Minute, now: float = 0.0) -> dict[Minute, int]:
    """Return the notes that a writer of this minute makes."""
    due.begin_write([minute])
    notes = due.to_note([minute], now)
    due.noted(notes, now)
    return notes


def test_a_note_stands_for_all_writing_until_it_is_recomputed() -> None:
    due, minute = DueMinutes(), MINUTES[0]
    assert noted(due, minute) == {minute: 1}
    assert noted(due, minute) == {}
    due.end_write([minute])
    due.end_write([minute])
    assert due.pop_due() == ({minute}, {minute: 1})
    assert noted(due, minute) == {minute: 2}


@pytest.mark.parametrize("failed", [False, True])
def test_a_note_outlives_what_is_recomputed_beside_a_writer(failed: bool) -> None:
    due, minute = DueMinutes(), MINUTES[0]
    noted(due, minute)
    due.end_write([minute])
    due.begin_write([minute])
    taken, over = due.pop_due()
    assert (taken, over) == ({minute}, {})
    if failed:
        due.add(taken)
    due.end_write([minute])
    assert due.pop_due() == ({minute}, {minute: 1})


def test_a_note_that_may_be_done_is_made_anew_and_ends_with_the_next_one() -> None:
    due, minute = DueMinutes(), MINUTES[0]
    noted(due, minute)
    due.end_write([minute])
    taken, _ = due.pop_due()
    due.add(taken)  # what was said of it may have reached the store
    assert noted(due, minute) == {minute: 2}
    assert due.pop_due() == ({minute}, {})
    due.end_write([minute])
    assert due.pop_due() == ({minute}, {minute: 2})


def test_a_note_whose_answer_was_lost_ends_when_its_minute_is_recomputed() -> None:
    due, minute = DueMinutes(), MINUTES[0]
    due.begin_write([minute])
    assert due.to_note([minute], 0.0) == {minute: 1}
    due.cancel_write([minute])
    assert due.pop_due() == (set(), {})
    due.add([minute])
    taken, over = due.pop_due()
    assert (taken, over) == ({minute}, {minute: 1})
    due.done(over)
    due.add(taken)
    assert due.pop_due() == ({minute}, {})


def test_a_note_that_grows_old_is_made_anew_for_the_next_attempt() -> None:
    due, minute = DueMinutes(), MINUTES[0]
    noted(due, minute)
    assert due.to_note([minute], RENEWED_AFTER) == {}
    renewed = due.to_note([minute], TICK)
    assert renewed == {minute: 2}
    due.noted(renewed, TICK)
    assert due.to_note([minute], TICK + RENEWED_AFTER) == {}
    due.end_write([minute])
    assert due.pop_due() == ({minute}, {minute: 2})
