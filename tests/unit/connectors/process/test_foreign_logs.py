from __future__ import annotations

import logging
from typing import Any

from connectors.process.foreign_logs import ForeignLogs
from connectors.process.limited_log import LOG_SECONDS


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def record(name: str, level: int, message: str = "") -> logging.LogRecord:
    return logging.LogRecord(name, level, "", 0, message, None, None)


def test_own_events_all_come_through() -> None:
    logs = ForeignLogs(Clock())
    for name in ("kvlens.connector", "pipeline.worker.agent", "connectors.reading"):
        assert all(logs.filter(record(name, logging.DEBUG)) for _ in range(100))


def test_a_flood_of_a_library_is_one_line_a_minute_and_level_with_the_number_left_out() -> None:
    clock = Clock()
    logs = ForeignLogs(clock)
    passed: list[Any] = []
    for _ in range(3 * 1000):
        for name, level in (("aiokafka", logging.ERROR), ("aiokafka.consumer.fetcher", logging.WARNING)):
            one = record(name, level)
            if logs.filter(one):
                passed.append((clock.now // LOG_SECONDS, level, vars(one).get("suppressed")))
        clock.now += LOG_SECONDS / 1000
    assert passed == [
        (0, logging.ERROR, None),
        (0, logging.WARNING, None),
        (1, logging.ERROR, 999),
        (1, logging.WARNING, 999),
        (2, logging.ERROR, 999),
        (2, logging.WARNING, 999),
    ]


def test_one_library_hides_no_other_and_chatter_is_left_out() -> None:
    logs = ForeignLogs(Clock())
    assert logs.filter(record("aiokafka", logging.ERROR))
    assert logs.filter(record("faust.app", logging.ERROR))
    assert not logs.filter(record("faust.app", logging.ERROR))
    assert not logs.filter(record("mode", logging.INFO))
    assert not logs.filter(record("urllib3.connectionpool", logging.WARNING))
