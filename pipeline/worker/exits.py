"""How a worker ends: its exit codes, and the immediate end after a fatal error."""

from __future__ import annotations

import enum
from typing import NoReturn

import structlog

from connectors.kafka.errors import TopicMadeAgain
from connectors.process.errors import OperatorError
from connectors.process.leaving import leave
from pipeline.errors import CheckpointFailed, OffsetGap, RecordFatal, RecordsRemoved, Stalled
from pipeline.kafka.identity import OF_MEMORY

_log = structlog.get_logger(__name__)


class ExitCode(enum.IntEnum):
    """How a worker ends; a supervisor restarts it on anything but OK."""

    OK = 0
    INTERNAL = 70
    UNAVAILABLE = 69
    """Kafka cannot be reached or lacks a topic."""
    RESTART = 75
    """The state in memory is void: fenced, a failed transaction, a gap, lost records, a stall. The next start
    continues."""


def exit_code(error: BaseException) -> ExitCode:
    """Return how the process ends because of `error`."""
    if isinstance(error, (CheckpointFailed, OffsetGap, RecordsRemoved, Stalled)):
        return ExitCode.RESTART
    if isinstance(error, TopicMadeAgain) and error.what_follows == OF_MEMORY:
        return ExitCode.RESTART
    # A bug has to leave its traceback in the log.
    if isinstance(error, OperatorError) and not isinstance(error, RecordFatal):
        return ExitCode.UNAVAILABLE
    return ExitCode.INTERNAL


def fatal(error: BaseException) -> NoReturn:
    """End the process at once because of `error`; nothing is unwound, so nothing more is written."""
    code = exit_code(error)
    if code is ExitCode.INTERNAL:
        _log.critical("worker ends", exc_info=error)
    else:
        _log.critical("worker ends", reason=str(error))
    leave(code)
