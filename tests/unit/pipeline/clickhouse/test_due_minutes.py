"""Notes in the store beside writers and recomputations: every row that is there is noted, or recomputed."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.clickhouse.due_minutes import DueMinutes, Minute

START = datetime(2026, 3, 4, 12, tzinfo=timezone.utc)
MINUTES = [Minute("flow", START + timedelta(minutes=number)) for number in range(3)]


class Store:
    """What stands in the store: notes, and how many writes of a minute are there and are recomputed."""

    def __init__(self) -> None:
        self.noted: dict[Minute, int] = {}
        self.done: dict[Minute, int] = {}
        self.writes = dict.fromkeys(MINUTES, 0)
        self.recomputed = dict.fromkeys(MINUTES, 0)

    def is_due(self, minute: Minute) -> bool:
        return self.noted.get(minute, 0) > self.done.get(minute, 0)

    def check(self) -> None:
        for minute in MINUTES:
            assert self.is_due(minute) or self.writes[minute] == self.recomputed[minute]


steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "written", "take", "read", "done", "fails"]),
        st.integers(0, 1),
        st.sets(st.sampled_from(MINUTES), min_size=1),
    ),
    max_size=60,
)


@given(steps)
def test_every_row_is_recomputed_or_noted(walk: list[tuple[str, int, set[Minute]]]) -> None:
    due, store = DueMinutes(), Store()
    writing: dict[int, set[Minute]] = {}
    taken: tuple[set[Minute], dict[Minute, int]] | None = None
    seen: dict[Minute, int] = {}
    for what, writer, minutes in walk:
        if what == "write" and writer not in writing:
            notes = due.to_note(minutes)
            store.noted |= notes
            due.write(minutes, notes)
            writing[writer] = minutes
        elif what == "written" and writer in writing:
            for minute in writing[writer]:
                store.writes[minute] += 1
            # The rows are there before anybody is told so.
            store.check()
            due.written(writing.pop(writer))
        elif what == "take" and taken is None:
            taken, seen = due.take(), {}
        elif what == "read" and taken is not None:
            seen = {minute: store.writes[minute] for minute in taken[0]}
            store.recomputed |= seen
        elif what == "done" and taken is not None and seen:
            store.done |= taken[1]
            taken = None
        elif what == "fails" and taken is not None:
            due.put_back(*taken)
            taken = None
        store.check()
    for minutes in writing.values():
        for minute in minutes:
            store.writes[minute] += 1
        due.written(minutes)
    if taken is not None:
        due.put_back(*taken)
    last, over = due.take()
    store.recomputed |= {minute: store.writes[minute] for minute in last}
    store.done |= over
    assert not any(map(store.is_due, MINUTES))
    assert store.recomputed == store.writes


def test_a_note_stands_for_all_writing_until_it_is_recomputed() -> None:
    due, minute = DueMinutes(), MINUTES[0]
    assert due.to_note([minute]) == {minute: 1}
    due.write([minute], {minute: 1})
    assert due.to_note([minute]) == {}
    due.written([minute])
    assert due.take() == ({minute}, {minute: 1})
    assert due.to_note([minute]) == {minute: 2}


@pytest.mark.parametrize("failed", [False, True])
def test_a_note_outlives_what_is_recomputed_beside_a_writer(failed: bool) -> None:
    due, minute = DueMinutes(), MINUTES[0]
    due.write([minute], {minute: 1})
    due.written([minute])
    due.write([minute], {})
    taken = due.take()
    assert taken == ({minute}, {})
    if failed:
        due.put_back(*taken)
    due.written([minute])
    assert due.take() == ({minute}, {minute: 1})
