"""Begins to serve HTTP on the port of a setting."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from connectors.process.errors import OperatorError

SHUTDOWN_SECONDS = 1.0
"""What is under way at the end takes no longer."""
IDLE_SECONDS = 75.0
"""A connection on which no whole request came for so long is closed: longer than proxies keep theirs, and
short enough that clients who say nothing, or slowly, do not take all that there are."""


class PortUnavailable(OperatorError):
    """The pages cannot be served on their port."""

    def __init__(self, setting: str, port: int, reason: str) -> None:
        super().__init__(setting, port, reason)
        self.setting = setting
        self.port = port
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot listen on {self.setting} {self.port}: {self.reason}; choose another one"


async def listening(
    application: web.Application, host: str, port: int, *, setting: str, **options: Any
) -> web.AppRunner:
    """Return what serves the application until its `cleanup`, and knows its `addresses`.

    `setting` is what the port is called there, `options` are those of the runner. Raises PortUnavailable.
    """
    runner = web.AppRunner(
        application,
        access_log=None,
        shutdown_timeout=SHUTDOWN_SECONDS,
        **{"keepalive_timeout": IDLE_SECONDS, **options},
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise PortUnavailable(setting, port, error.strerror or str(error)) from error
    return runner
