"""Logs of the long-running commands: structlog over the standard library, so that all lines look alike."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import structlog

from connectors.process.addresses import printable, without_secrets
from connectors.process.foreign_logs import OWN_LOGGERS, ForeignLogs

LOG_LEVELS = ("debug", "info", "warning", "error")


def configure_logs(level: str, *, libraries: bool = True) -> None:
    """Log one line for each event to stderr: text on a terminal, coloured unless NO_COLOR is set, else JSON.

    `level` is one of LOG_LEVELS. Except at debug, most of what libraries log is left out (`ForeignLogs`); all
    of it without `libraries`.
    """
    terminal = sys.stderr.isatty()
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    render: list[structlog.typing.Processor] = (
        [_printable, structlog.dev.ConsoleRenderer(colors=not os.environ.get("NO_COLOR"))]
        if terminal
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    handler = logging.StreamHandler(sys.stderr)
    if level != "debug":
        handler.addFilter(ForeignLogs())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render, _hide_secrets],
        )
    )
    for name in [""] if libraries else [*OWN_LOGGERS]:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level.upper())


def _printable(_logger: Any, _method: str, event: Any) -> Any:
    """Make values from outside safe for a terminal; JSON has escapes of its own."""
    return {key: printable(value) if isinstance(value, str) else value for key, value in event.items()}


def _hide_secrets(_logger: Any, _method: str, line: Any) -> Any:
    """Hide secrets in the whole line, as libraries and stack traces quote addresses, too."""
    return without_secrets(line)
