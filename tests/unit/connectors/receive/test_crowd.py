"""When what arrives is left alone because most sources wait."""

from __future__ import annotations

from connectors.receive.crowd import BETWEEN_SECONDS, LEAST_SOURCES, MOST_SECONDS, Crowd


def test_a_crowd_lasts_until_few_of_it_wait() -> None:
    crowd = Crowd()
    crowd.came(1000, 800, now=1.0)
    assert crowd
    assert crowd.lasts(800, now=1.1)
    assert crowd.lasts(101, now=1.2)
    assert not crowd.lasts(100, now=1.3)
    crowd.came(1000, 500, now=1.4)
    assert crowd.lasts(500, now=1.5), "there may be another at once"


def test_few_sources_are_none_and_neither_is_a_minority() -> None:
    crowd = Crowd()
    crowd.came(LEAST_SOURCES - 1, LEAST_SOURCES - 1, now=1.0)
    crowd.came(1000, 499, now=1.0)
    assert not crowd
    assert not crowd.lasts(1000, now=1.0)


def test_where_nothing_can_be_dealt_with_it_ends() -> None:
    crowd = Crowd()
    crowd.came(1000, 1000, now=1.0)
    assert not crowd.lasts(0, now=1.1)


def test_others_do_not_wait_for_long_and_not_again_soon() -> None:
    crowd = Crowd()
    crowd.came(1000, 1000, now=1.0)
    assert crowd.lasts(900, now=1.0 + MOST_SECONDS / 2)
    ended = 1.0 + MOST_SECONDS
    assert not crowd.lasts(900, now=ended)
    crowd.came(1000, 1000, now=ended + BETWEEN_SECONDS / 2)
    assert not crowd
    crowd.came(1000, 1000, now=ended + BETWEEN_SECONDS)
    assert crowd
