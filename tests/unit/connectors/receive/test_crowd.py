"""When what arrives is left alone because most sources wait."""

from __future__ import annotations

from connectors.receive.crowd import BETWEEN_SECONDS, LEAST_SOURCES, LOOK_SECONDS, Crowd


def test_a_crowd_lasts_until_few_of_it_wait() -> None:
    crowd = Crowd()
    crowd.gathers(800, size=1000, now=1.0)
    assert crowd
    assert crowd.lasts(800, size=1000, now=1.1)
    assert crowd.lasts(101, size=1000, now=1.2)
    assert not crowd.lasts(100, size=1000, now=1.3)
    crowd.gathers(500, size=1000, now=1.4)
    assert crowd.lasts(500, size=1000, now=1.5), "there may be another at once"


def test_few_sources_are_none() -> None:
    crowd = Crowd()
    crowd.gathers(LEAST_SOURCES - 1, size=1000, now=1.0)
    assert not crowd
    assert not crowd.lasts(1000, size=1000, now=1.0)


def test_where_nothing_can_be_dealt_with_it_ends() -> None:
    crowd = Crowd()
    crowd.gathers(1000, size=1000, now=1.0)
    assert not crowd.lasts(0, size=1000, now=1.1)


def test_it_lasts_as_long_as_less_and_less_waits() -> None:
    crowd = Crowd()
    now, size = 1.0, 1_000_000
    crowd.gathers(1000, size=size, now=now)
    for _ in range(10):
        now, size = now + LOOK_SECONDS, size * 3 // 4
        assert crowd.lasts(1000, size=size, now=now)
    now, size = now + LOOK_SECONDS, size * 3 // 4 + 2
    assert crowd.lasts(1000, size=size, now=now - 0.1), "not looked at yet"
    assert not crowd.lasts(1000, size=size, now=now)
    crowd.gathers(1000, size=size, now=now + BETWEEN_SECONDS / 2)
    assert not crowd, "its sources are costly ones"
    crowd.gathers(1000, size=size, now=now + BETWEEN_SECONDS)
    assert crowd
