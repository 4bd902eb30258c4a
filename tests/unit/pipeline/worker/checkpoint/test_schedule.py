"""Rounds at a fixed rate, by a clock that only moves while somebody waits or works."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.worker.checkpoint.schedule import (
    CUT_SHARE,
    FAR_BEHIND_PERIODS,
    FAR_BEHIND_SECONDS,
    MOST_PERIODS,
    Lag,
    Schedule,
)

NOW = 1_700_000_000.0
OLD = NOW - FAR_BEHIND_SECONDS - 1


def _beginnings(seconds: float, rounds: Iterable[float], *, early: float = 0.0) -> list[float]:
    """Return when rounds of such lengths begin, after 100; timers fire `early`."""
    now, schedule, begun = 100.0, Schedule(seconds, 100.0), []
    for length in rounds:
        now += schedule.pause(now) - early
        begun.append(now - 100)
        now += length
    return begun


def test_rounds_begin_at_multiples_whatever_they_take() -> None:
    assert _beginnings(1.0, [0.2, 0.45, 0.0, 0.4]) == pytest.approx([1, 2, 3, 4])


def test_what_a_long_round_covers_is_left_out_and_not_made_up_for() -> None:
    assert _beginnings(0.5, [0.125, 1.625, 0.125, 0.25, 0.125]) == pytest.approx([0.5, 1, 3, 3.5, 4.5])


def test_a_round_that_ends_just_before_the_next_beginning_is_followed_by_a_rest() -> None:
    assert _beginnings(1.0, [0.95, 0.95, 0.95]) == pytest.approx([1, 3, 5])


def test_an_early_timer_begins_no_round_twice() -> None:
    assert _beginnings(1.0, [0.0, 0.0, 0.0], early=0.001) == pytest.approx([0.999, 1.999, 2.999])


@given(st.floats(0.05, 10), st.lists(st.floats(0, 50), min_size=2, max_size=50))
def test_one_at_a_time_with_a_rest_of_half_a_period_to_one_and_a_half(
    seconds: float, lengths: list[float]
) -> None:
    begun = _beginnings(seconds, lengths)
    for before, length, after in zip(begun, lengths, begun[1:], strict=False):
        rest = after - before - length
        assert seconds * 0.5 - 1e-6 <= rest <= seconds * 1.5 + 1e-6
        assert abs(after / seconds - round(after / seconds)) < 1e-6
        if length < seconds * 0.49:
            assert after - before == pytest.approx(seconds, abs=1e-6)


def _made(far_behind: Iterable[bool]) -> list[bool]:
    schedule = Schedule(1.0, 100.0)
    return [schedule.due(far_behind=one) for one in far_behind]


def test_an_agent_that_is_far_behind_makes_every_eighth_round() -> None:
    assert FAR_BEHIND_PERIODS == 8
    assert _made([True] * 17) == [*[False] * 7, True, *[False] * 7, True, False]


def test_a_round_that_was_brought_forward_counts_as_the_last_one() -> None:
    schedule = Schedule(1.0, 100.0)
    assert [schedule.due(far_behind=True) for _ in range(5)] == [False] * 5
    schedule.brought_forward()
    assert [schedule.due(far_behind=True) for _ in range(9)] == [*[False] * 7, True, False]


def test_an_agent_that_has_caught_up_makes_the_next_round() -> None:
    assert _made([True, True, False, False, True, False]) == [False, False, True, True, False, True]


@given(st.lists(st.booleans(), max_size=60))
def test_none_is_later_than_eight_periods_and_none_is_left_out_at_the_head(far_behind: list[bool]) -> None:
    made = _made(far_behind)
    for at, behind in enumerate(far_behind):
        assert made[at] or behind
        assert any(made[max(0, at - 7) : at + 1]) or at < 7


def _intervals(each: float, batches: float, rounds: int, *, seconds: float = 1.0) -> list[int]:
    """Return the periods between rounds whose cuts take `each` seconds, and `batches` for each second."""
    schedule, passed, found = Schedule(seconds, 100.0), 0, list[int]()
    while len(found) < rounds:
        passed += 1
        if schedule.due(far_behind=False):
            schedule.made(each + batches * passed * seconds)
            found.append(passed)
            passed = 0
    return found


@pytest.mark.parametrize(
    ("each", "batches", "periods"),
    [(0.06, 0.06, 1), (0.1, 0.06, 2), (0.15, 0.06, 3), (0.4, 0.1, 4), (5, 1, 4)],
)
def test_an_agent_whose_cuts_take_long_makes_fewer_rounds(each: float, batches: float, periods: int) -> None:
    assert _intervals(each, batches, 6)[3:] == [periods] * 3


def test_tells_how_long_it_is_from_one_round_to_the_next() -> None:
    schedule = Schedule(0.5, 100.0)
    assert schedule.every == 0.5
    schedule.made(0.15)
    assert schedule.every == 1.5


@given(st.floats(0, 10), st.floats(0, 1), st.floats(0.05, 10))
def test_cuts_take_their_share_at_most_unless_rounds_are_as_few_as_may_be(
    each: float, batches: float, seconds: float
) -> None:
    last = _intervals(each, batches, 10, seconds=seconds)[-1]
    assert each + batches * last * seconds <= CUT_SHARE * last * seconds * 1.001 or last == MOST_PERIODS


def test_an_agent_with_few_sources_again_makes_all_rounds() -> None:
    schedule = Schedule(1.0, 100.0)
    schedule.made(10.0)
    assert [schedule.due(far_behind=False) for _ in range(4)] == [False, False, False, True]
    schedule.made(0.01)
    assert schedule.due(far_behind=False)


def _looked(*looks: tuple[float, int, bool]) -> list[bool]:
    """Return what is found by looks at: newest time in the log, what was reached, applying is held."""
    lag, found = Lag(), []
    for newest, reached, holding in looks:
        lag.look(NOW, newest=newest, reached=reached, holding=holding)
        found.append(lag.far_behind)
    return found


def test_an_agent_is_far_behind_while_it_applies_what_is_old() -> None:
    assert _looked((0.0, 0, False), (OLD, 7, False), (OLD, 9, False), (NOW - 1, 12, False)) == [
        False,
        True,
        True,
        False,
    ]


def test_an_agent_whose_last_record_is_old_is_not_far_behind_once_nothing_is_left() -> None:
    assert _looked((OLD, 7, False), (OLD, 7, False), (0.0, 7, False), (OLD, 9, False)) == [
        True,
        False,
        False,
        True,
    ]


def test_what_is_held_or_was_just_cut_says_nothing_of_how_far_behind_an_agent_is() -> None:
    assert _looked((OLD, 7, False), (OLD, 7, True), (0.0, 9, False)) == [True, True, True]
