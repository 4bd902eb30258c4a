"""Keeps what libraries log readable: without its broker, Kafka's client logs hundreds of lines a second."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from connectors.process.limited_log import LogLimiter

OWN_LOGGERS = frozenset({"connectors", "kvlens", "pipeline"})
_RAISED = frozenset({"clickhouse_connect", "urllib3"})
"""Libraries that log as warnings what they raise as well; own events say it better."""


class ForeignLogs(logging.Filter):
    """Lets all own records through, and in LOG_SECONDS one record of each library and level.

    The next one says how many were left out. What libraries log below WARNING helps only their developers:
    it is left out.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._limiter = LogLimiter(clock)

    def filter(self, record: logging.LogRecord) -> bool:
        library = record.name.partition(".")[0]
        if library in OWN_LOGGERS:
            return True
        if record.levelno < (logging.ERROR if library in _RAISED else logging.WARNING):
            return False
        suppressed = self._limiter.admit(library, record.levelname)
        if suppressed is None:
            return False
        # As extra values of the record, which the handler writes like those of own events.
        vars(record).update(suppressed)
        return True
