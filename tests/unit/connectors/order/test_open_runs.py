"""Open runs are looked at when their time has come."""

from __future__ import annotations

import random

from connectors.order.open_runs import OpenRuns

A, B, C = (("a", 0), ("b", 0), ("b", 1))


def test_streams_come_when_they_are_due_and_once() -> None:
    runs = OpenRuns()
    runs.opened(B, 10.2)
    runs.opened(A, 10.1)
    runs.opened(A, 10.3)
    assert runs.due(10.0) == []
    assert runs.due(10.1) == [A]
    runs.opened(A, 10.3)
    runs.opened(C, 10.25)
    assert runs.due(10.4) == [B, C, A]
    assert runs.due(99.0) == []


def test_all_streams_come_when_the_clock_was_set_back() -> None:
    runs = OpenRuns()
    runs.opened(A, 10.1)
    runs.opened(B, 10.2)
    assert runs.due(10.0) == []
    assert sorted(runs.due(5.0)) == [A, B]
    runs.opened(A, 5.1)
    assert runs.due(5.1) == [A]


def test_no_run_is_forgotten_whatever_opens_and_closes() -> None:
    rng = random.Random(4)
    runs, now = OpenRuns(), 100.0
    open_until: dict[tuple[str, int], float] = {}
    for _ in range(5_000):
        now += rng.choice((0.001, 0.01, 0.03, -0.5))
        source = (rng.choice("abcdef"), 0)
        if source not in open_until:
            open_until[source] = now + 0.1
            runs.opened(source, now + 0.1)
        elif rng.random() < 0.3:  # closed by its size
            del open_until[source]
        for looked_at in runs.due(now):
            due_at = open_until.pop(looked_at, None)
            if due_at is not None and due_at - 0.1 <= now < due_at:  # others are closed
                open_until[looked_at] = due_at
                runs.opened(looked_at, due_at)
        assert all(due_at > now for due_at in open_until.values())
