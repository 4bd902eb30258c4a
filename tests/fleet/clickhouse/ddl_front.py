"""Stands before the nodes of a cluster and does with ON CLUSTER what Keeper and each node's DDL worker do.

The servers of these tests cannot: they have no Keeper. A statement for the cluster goes to every node without
the clause; anything else goes to the first one as it is.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from aiohttp import ClientSession, web

_CLAUSE = re.compile(rb" ON CLUSTER '\w+'")


class DdlFront:
    """`url` is its address; `statements` are those that it sent to every node, as they came."""

    def __init__(self, nodes: Sequence[str], port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.statements: list[str] = []
        self._nodes = nodes
        self._port = port

    @contextmanager
    def running(self) -> Iterator[DdlFront]:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        runner = asyncio.run_coroutine_threadsafe(self._start(), loop).result()
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    async def _start(self) -> web.AppRunner:
        application = web.Application(client_max_size=1 << 26)
        application.router.add_route("*", "/{path:.*}", self._forward)
        runner = web.AppRunner(application, auto_decompress=False)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self._port).start()
        return runner

    async def _forward(self, request: web.Request) -> web.Response:
        body = await request.read()
        nodes = self._nodes[:1]
        if _CLAUSE.search(body):
            self.statements.append(body.decode())
            body, nodes = _CLAUSE.sub(b"", body), self._nodes
        headers = {name: value for name, value in request.headers.items() if name not in _OF_THE_WAY}
        async with ClientSession(auto_decompress=False) as session:
            for node in nodes:
                async with session.request(
                    request.method, node + request.path_qs, data=body, headers=headers
                ) as answer:
                    said = await answer.read()
                    if answer.status != 200:
                        break
        kept = {name: value for name, value in answer.headers.items() if name not in _OF_THE_WAY}
        return web.Response(status=answer.status, body=said, headers=kept)


_OF_THE_WAY = ("Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Date")
