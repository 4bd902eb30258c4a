"""Takes over HTTP what LMCache's servers would report to their coordinator: events and heartbeats.

Bounded in size and time.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web

from connectors.kafka.encoding import UNDECODABLE
from connectors.lmcache.servers import Servers
from connectors.lmcache.wire import decode_registration
from connectors.process.errors import DataError
from connectors.process.listening import ForeignPage, listening
from connectors.process.login import Login
from schemas.reasons import ReportRefusal
from schemas.settings import Lmcache

BODY_SECONDS = 5.0
"""A request whose body takes longer is refused."""
TAKE_SECONDS = 1.5
"""A server waits two seconds for its answer; what has no room at Kafka by then is refused. What has is taken,
even if its answer comes too late: the server's numbers tell if it reports that again."""
MOST_AT_ONCE = 64
"""Requests under way, at most."""
STATUS: dict[ReportRefusal, int] = {
    "malformed": 422,
    "too_large": 413,
    "slow_body": 408,
    "busy": 503,
    "no_token": 401,
    "too_many_sources": 503,
    "foreign_page": 403,
    "content_type": 415,
}
"""HTTP status of requests of which nothing is taken."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class DoorTelemetry(Protocol):
    """Where refused requests are counted."""

    def reports_refused(self, refused: Counter[ReportRefusal]) -> None: ...


class _Refused(DataError):
    """Nothing of a request is taken."""

    reason: ReportRefusal
    detail: str = ""
    line = "{reason}: {detail}"


class Door:
    """Listens for reports until stopped."""

    def __init__(
        self, settings: Lmcache, servers: Servers, telemetry: DoorTelemetry, *, most_bytes: int
    ) -> None:
        self._settings = settings
        self._servers = servers
        self._telemetry = telemetry
        self._login = Login(settings.token, basic=True)
        self._most_bytes = most_bytes
        self._under_way = 0
        self._runner: web.AppRunner | None = None
        self.port = settings.port

    async def start(self) -> None:
        """Begin to listen. Raises PortUnavailable."""
        application = web.Application(middlewares=[self._bounded], client_max_size=self._most_bytes)
        application.add_routes(
            [
                web.post("/events", self._events),
                web.post("/instances", self._register),
                web.put("/instances/{server}/heartbeat", self._heartbeat),
                web.delete("/instances/{server}", self._leave),
            ]
        )
        self._runner = await listening(
            application,
            self._settings.host,
            self._settings.port,
            setting="lmcache.port",
            login=bool(self._settings.token),
        )
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _bounded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let in requests with the token, MOST_AT_ONCE at a time, and count those that are refused."""
        try:
            if not await self._login.lets_in(request):
                raise _Refused("no_token")
            if self._under_way >= MOST_AT_ONCE:
                raise _Refused("busy")
            self._under_way += 1
            try:
                return await handler(request)
            except ForeignPage as refused:
                raise _Refused(refused.why, refused.line) from None
            finally:
                self._under_way -= 1
        except _Refused as refusal:
            self._telemetry.reports_refused(Counter({refusal.reason: 1}))
            said = {"error": refusal.reason, **({"detail": refusal.detail} if refusal.detail else {})}
            return web.json_response(said, status=STATUS[refusal.reason])
        except web.HTTPTooManyRequests as refused:
            self._telemetry.reports_refused(Counter({"no_token": 1}))
            return web.json_response({"error": "no_token", "detail": refused.reason}, status=refused.status)

    async def _events(self, request: web.Request) -> web.Response:
        """Take what can be taken of a report, and count the rest."""
        body, now = await self._body(request), time.time()
        try:
            refused = await self._servers.take([(body, now)], now, posted=True, seconds=TAKE_SECONDS)
        except asyncio.TimeoutError:
            raise _Refused("busy") from None
        status = STATUS["malformed"] if refused["malformed"] else 200
        return web.json_response({"refused": refused}, status=status)

    async def _register(self, request: web.Request) -> web.Response:
        """Register a server that starts, or whose heartbeat was refused. It then declares its capacities."""
        try:
            server = decode_registration(await self._body(request)).instance_id
        except UNDECODABLE:
            raise _Refused("malformed") from None
        before = self._servers.register(server)
        if before is None:
            raise _Refused("too_many_sources")
        return web.json_response({"instance_id": server, "re_registered": before})

    async def _heartbeat(self, request: web.Request) -> web.Response:
        server = request.match_info["server"]
        if not self._servers.beat(server):
            return web.json_response({"error": "not registered"}, status=404)
        return web.json_response({"instance_id": server})

    async def _leave(self, request: web.Request) -> web.Response:
        self._servers.leaves(request.match_info["server"])
        return web.Response(status=204)

    async def _body(self, request: web.Request) -> bytes:
        if (request.content_length or 0) > self._most_bytes:
            raise _Refused("too_large")
        try:
            return await asyncio.wait_for(request.read(), BODY_SECONDS)
        except web.HTTPRequestEntityTooLarge:
            raise _Refused("too_large") from None
        except asyncio.TimeoutError:
            raise _Refused("slow_body") from None
        except web.RequestPayloadError:  # its bytes are not what `Content-Encoding` says
            raise _Refused("malformed") from None
