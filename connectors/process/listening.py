"""Serves HTTP on the port of a setting; without a login, pages of other sites are refused."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from connectors.process.errors import OperatorError
from connectors.process.foreign_logs import ForeignLogs
from connectors.process.foreign_pages import ForeignReason, Refusal, foreign, is_loopback

SHUTDOWN_SECONDS = 1.0
"""How long requests under way may take at the end."""
IDLE_SECONDS = 75.0
"""A connection on which no whole request came for so long is closed: longer than proxies keep theirs, and
short enough that silent or slow clients do not use up all connections."""


class _Bounded(ForeignLogs):
    """Logs what is no HTTP request without a stack, and seldom, so that its sender cannot fill the log."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and isinstance(record.exc_info[1], HttpProcessingError):
            record.msg, record.exc_info = "what %s sends is no HTTP request", None
        return super().filter(record)


_logger = logging.getLogger("aiohttp.server")
_logger.addFilter(_Bounded())


class PortUnavailable(OperatorError):
    """The pages cannot be served on their port."""

    setting: str
    port: int
    reason: str
    line = "cannot listen on {setting} {port}: {reason}; choose another one"


class ForeignPage(web.HTTPException):
    """A page of another site may have sent the request. Applications may answer it in their own form."""

    def __init__(self, refusal: Refusal) -> None:
        self.status_code = refusal.status
        self.why: ForeignReason = refusal.reason
        self.line = refusal.text
        super().__init__(text=f"{refusal.text}\n")


async def listening(
    application: web.Application,
    host: str,
    port: int,
    *,
    setting: str,
    login: bool = False,
    linked: bool = True,
    simple_bodies: bool = False,
    **options: Any,
) -> web.AppRunner:
    """Begin to serve an application; return the runner, which has the `addresses` and ends by `cleanup`.

    `setting` names the port's setting, `options` are those of the runner. `login`: the application has one,
    which decides who is answered. Without it, a request that `foreign` refuses raises ForeignPage inside the
    application's own middlewares. Raises PortUnavailable.
    """
    if not login:
        application.middlewares.append(
            _own_pages_only(loopback=is_loopback(host), linked=linked, simple_bodies=simple_bodies)
        )
    runner = web.AppRunner(
        application,
        access_log=None,
        logger=_logger,
        **{"shutdown_timeout": SHUTDOWN_SECONDS, "keepalive_timeout": IDLE_SECONDS, **options},
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise PortUnavailable(setting, port, error.strerror or str(error)) from error
    return runner


def _own_pages_only(*, loopback: bool, linked: bool, simple_bodies: bool) -> Callable[..., Any]:
    @web.middleware
    async def checked(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        refusal = foreign(
            request.method, request.headers, loopback=loopback, linked=linked, simple_bodies=simple_bodies
        )
        if refusal is not None:
            raise ForeignPage(refusal)
        return await handler(request)

    return checked
