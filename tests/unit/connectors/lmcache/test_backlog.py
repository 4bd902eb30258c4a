"""How far a topic is read, and when the servers were there of which it tells."""

from __future__ import annotations

from connectors.lmcache.backlog import ALL, Backlog

NOW = 1_800_000_000.0
DAY = 86_400.0


def test_what_was_there_at_the_start_is_as_old_as_it_says() -> None:
    backlog = Backlog({0: 3, 1: 1, 2: 0})
    assert (backlog.partitions, backlog.read_to) == ([0, 1, 2], 0.0)
    backlog.stands_at(2, 0)
    assert backlog.heard_at(0, NOW - 5 * DAY, NOW) == NOW - 5 * DAY
    assert backlog.heard_at(1, NOW - DAY, NOW) == NOW - DAY
    assert backlog.read_to == NOW - 5 * DAY
    backlog.stands_at(0, 2)
    backlog.stands_at(1, 1)
    assert backlog.heard_at(0, NOW - 3 * DAY, NOW) == NOW - 3 * DAY
    assert backlog.read_to == NOW - 3 * DAY
    backlog.stands_at(0, 3)
    assert (backlog.partitions, backlog.read_to) == ([], ALL)


def test_what_comes_later_is_heard_as_it_comes_whatever_a_clock_says() -> None:
    backlog = Backlog({0: 5})
    assert backlog.heard_at(0, NOW + DAY, NOW) == NOW
    assert backlog.heard_at(0, -0.001, NOW) == NOW
    backlog.stands_at(0, 5)
    assert backlog.heard_at(0, NOW - 5 * DAY, NOW) == NOW
