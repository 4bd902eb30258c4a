"""What is believed of absence: most of anything only if it was found so for a while."""

from __future__ import annotations

from connectors.process.absence import CONFIRM_SECONDS, Absence


class Told:
    def __init__(self) -> None:
        self.doubts: list[tuple[int, int]] = []
        self.absence = Absence(lambda known, found: self.doubts.append((known, found)))


def test_some_are_gone_at_once_and_most_after_a_while() -> None:
    told = Told()
    assert told.absence.believed(10, 9, 0.0)
    assert told.absence.believed(2, 1, 0.0)
    assert told.absence.believed(0, 0, 0.0)
    assert told.doubts == []
    for known, found in ((1, 0), (3, 1), (10, 4)):
        told.doubts.clear()
        assert not told.absence.believed(known, found, 100.0)
        assert not told.absence.believed(known, found, 100.0 + CONFIRM_SECONDS - 0.1)
        assert told.absence.pending
        assert told.absence.believed(known, found, 100.0 + CONFIRM_SECONDS)
        assert not told.absence.pending
        assert told.doubts == [(known, found)]


def test_who_comes_back_meanwhile_was_never_gone() -> None:
    told = Told()
    assert not told.absence.believed(5, 0, 0.0)
    assert told.absence.believed(5, 5, 10.0)
    assert not told.absence.believed(5, 0, CONFIRM_SECONDS)
    assert told.doubts == [(5, 0), (5, 0)]


def test_time_without_a_proper_answer_confirms_nothing() -> None:
    told = Told()
    assert not told.absence.believed(5, 0, 0.0)
    told.absence.unanswered()
    assert not told.absence.believed(5, 0, 2 * CONFIRM_SECONDS)
    assert told.absence.believed(5, 0, 3 * CONFIRM_SECONDS)
    assert told.doubts == [(5, 0)]


def test_a_clock_that_is_set_back_prolongs_no_doubt() -> None:
    told = Told()
    assert not told.absence.believed(5, 0, 3600.0)
    assert not told.absence.believed(5, 0, 0.0)
    assert told.absence.believed(5, 0, CONFIRM_SECONDS)
