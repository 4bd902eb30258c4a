"""Quiet sources are reported once in ten seconds, busy ones never."""

from __future__ import annotations

from connectors.order.idle import IdleReports

A, B = ("a", 0), ("b", 0)


def test_a_source_never_heard_is_reported_ten_seconds_after_it_was_added_and_then_every_ten() -> None:
    reports = IdleReports()
    told = [now for now in range(100, 161) if reports.due(float(now), [(A, 0.0)])]
    assert told == [110, 120, 130, 140, 150, 160]


def test_a_batch_puts_the_next_report_off_by_ten_seconds() -> None:
    reports = IdleReports()
    heard = {110: 105.0, 125: 121.0}
    last = 100.0
    told = []
    for now in range(100, 150):
        last = heard.get(now, last)
        if reports.due(float(now), [(A, last)]):
            told.append(now)
    assert told == [115, 131, 141], "the batch of 105 was heard of at 110, that of 121 at 125"


def test_only_the_quiet_ones_of_several_are_named() -> None:
    reports = IdleReports()
    told = [reports.due(float(now), [(A, 0.0), (B, float(now))]) for now in range(0, 21, 5)]
    assert told == [[], [], [A], [], [A]]


def test_a_source_that_was_removed_and_comes_back_begins_anew() -> None:
    reports = IdleReports()
    reports.due(0.0, [(A, 0.0)])
    reports.due(5.0, [])
    assert reports.due(12.0, [(A, 0.0)]) == []
    assert reports.due(22.0, [(A, 0.0)]) == [A]


def test_a_clock_that_was_set_back_neither_delays_nor_repeats_a_report() -> None:
    reports = IdleReports()
    reports.due(1000.0, [(A, 1000.0)])
    told = [now for now in range(500, 525) if reports.due(float(now), [(A, 1000.0)])]
    assert told == [500, 510, 520]
