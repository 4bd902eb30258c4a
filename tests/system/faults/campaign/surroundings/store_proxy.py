"""HTTP between workers and the store: passes on, misbehaves as stores and networks do, and sees moments."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Literal

import aiohttp
from aiohttp import web

Mood = Literal["passes", "refuses", "silent", "read-only", "full", "cuts"]
"""passes: as if it were not there. refuses: nobody listens. silent: takes requests and says nothing.
read-only, full: inserts get ClickHouse's error. cuts: inserts are done and not answered."""

Moment = Literal["insert begins", "rows are in", "rollup begins"]

_ERRORS = {
    "read-only": (164, "Cannot execute query in readonly mode. (READONLY)"),
    "full": (243, "Cannot reserve 1.00 MiB, not enough space. (NOT_ENOUGH_SPACE)"),
}
_OF_THE_CONNECTION = {"host", "content-length", "transfer-encoding", "connection", "date", "server"}
_LARGEST_BODY = 1 << 30
_CALL_SECONDS = 30.0


class StoreProxy:
    """One port for each worker, so that it is known whose request it is."""

    def __init__(self, target: str) -> None:
        """`target` is the URL of the store."""
        self._target = target
        self._mood: Mood = "passes"
        self._changed = asyncio.Event()
        self._armed: dict[int, tuple[Moment, Callable[[], None], threading.Event]] = {}
        self._open_inserts: Counter[int] = Counter()
        self._ports: list[int] = []
        self._sites: list[web.TCPSite] = []
        self._transports: set[asyncio.Transport] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="store proxy", daemon=True)
        self._thread.start()
        self._call(self._begin())

    def listen(self, port: int) -> None:
        """Listen on loopback."""
        self._ports.append(port)
        self._call(self._open(port))

    def feel(self, mood: Mood) -> None:
        """Treat requests so from now on; those under way that wait for an answer are cut."""
        self._call(self._feel(mood))

    def arm(self, port: int, moment: Moment, act: Callable[[], None]) -> threading.Event:
        """Call `act` in a thread at the next such moment of a worker; the event is set when it is done."""
        happened = threading.Event()
        self._armed[port] = moment, act, happened
        return happened

    def disarm(self, port: int) -> None:
        self._armed.pop(port, None)

    def close(self) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        future: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        future.result(_CALL_SECONDS)

    async def _begin(self) -> None:
        self._client = aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(120))
        application = web.Application(client_max_size=_LARGEST_BODY)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, auto_decompress=False, shutdown_timeout=1)
        await self._runner.setup()

    async def _open(self, port: int) -> None:
        if self._mood != "refuses":
            site = web.TCPSite(self._runner, "127.0.0.1", port)
            await site.start()
            self._sites.append(site)

    async def _feel(self, mood: Mood) -> None:
        before, self._mood = self._mood, mood
        self._changed.set()
        self._changed = asyncio.Event()
        if mood == "refuses":
            for site in self._sites:
                await site.stop()
            self._sites.clear()
            for transport in self._transports:
                transport.abort()
        elif before == "refuses":
            for port in self._ports:
                await self._open(port)

    async def _end(self) -> None:
        self._changed.set()
        await self._client.close()
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.Response:
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._transports.add(transport)
        try:
            return await self._answer(request, transport)
        except (aiohttp.ClientError, asyncio.TimeoutError):
            transport.abort()
            return web.Response()
        finally:
            self._transports.discard(transport)

    async def _answer(self, request: web.Request, transport: asyncio.Transport) -> web.Response:
        body = await request.read()
        port = transport.get_extra_info("sockname")[1]
        # Rows come compressed, or right behind their statement; a rollup begins with a comment.
        rollup = body.startswith(b"--") and b"INSERT INTO" in body
        insert = rollup or "Content-Encoding" in request.headers or body.startswith(b"INSERT INTO")
        mood = self._mood
        if mood == "silent":
            await self._changed.wait()
            transport.abort()
            return web.Response()
        if insert and mood in _ERRORS:
            code, text = _ERRORS[mood]
            return web.Response(
                status=500,
                headers={"X-ClickHouse-Exception-Code": str(code)},
                text=f"Code: {code}. DB::Exception: {text} (version 25.8.1.1)",
            )
        if rollup:
            await self._reached(port, "rollup begins", transport)
        elif insert:
            await self._reached(port, "insert begins", transport)
            self._open_inserts[port] += 1
        try:
            async with self._client.request(
                request.method,
                f"{self._target}{request.path_qs}",
                headers=_kept(request.headers),
                data=body,
            ) as answer:
                content = await answer.read()
        finally:
            self._open_inserts[port] -= insert and not rollup
        if insert and not rollup and not self._open_inserts[port]:
            await self._reached(port, "rows are in", transport)
        if insert and self._mood == "cuts":
            transport.abort()
        return web.Response(status=answer.status, headers=_kept(answer.headers), body=content)

    async def _reached(self, port: int, moment: Moment, transport: asyncio.Transport) -> None:
        armed = self._armed.get(port)
        if armed is None or armed[0] != moment:
            return
        del self._armed[port]
        _, act, happened = armed
        await asyncio.to_thread(act)
        transport.abort()
        happened.set()


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that are passed on."""
    return {name: value for name, value in headers.items() if name.lower() not in _OF_THE_CONNECTION}
