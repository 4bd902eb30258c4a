"""ClickHouse's HTTP interface over the embedded engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from connectors.process.listening import ForeignPage
from pipeline.local.clickhouse.accounts import Account, authenticate
from pipeline.local.clickhouse.engine import Answer, Engine, EngineConnection, quoted_name
from pipeline.local.clickhouse.errors import ACCESS_DENIED, NOT_IMPLEMENTED, SYNTAX_ERROR, StoreError
from pipeline.local.clickhouse.http.hello import hello_block
from pipeline.local.clickhouse.http.reply import Reply, failed
from pipeline.local.clickhouse.http.request import Request, read_request, split_statement, whole_number
from pipeline.local.clickhouse.statements import (
    DEFAULT_FORMAT,
    STREAMABLE,
    Head,
    Verdict,
    is_empty,
    is_select,
    output_format,
)

_PLAY = {file.name: file.read_bytes() for file in (Path(__file__).parent / "play").iterdir()}
_PLAY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_LONGEST_SESSION_SECONDS = 3600.0
_DEFAULT_SESSION_SECONDS = 60.0
_ENGINE_THREADS = 32
_NO_TEXT = "The request is not UTF-8. (SYNTAX_ERROR)"
_T = TypeVar("_T")


class Front:
    """Handlers for `/`, `/ping` and `/play`; engine calls block, so each has a thread."""

    def __init__(
        self, engine: Engine, accounts: Sequence[Account], failed: Callable[[StoreError], None]
    ) -> None:
        """`failed` is called with every error that is answered."""
        self._engine = engine
        self._failed = failed
        self._accounts = accounts
        self._threads = ThreadPoolExecutor(_ENGINE_THREADS, thread_name_prefix="engine")

    def application(self) -> web.Application:
        application = web.Application(middlewares=[_in_its_form])
        for path in ("/ping", "/replicas_status"):
            application.router.add_get(path, self._ping)
        application.router.add_get("/play", self._play)
        application.router.add_get("/play/{name}", self._play)
        for path in ("/", "/query"):
            application.router.add_route("*", path, self._handle)
        return application

    def close(self) -> None:
        self._threads.shutdown()

    async def _ping(self, _: web.Request) -> web.Response:
        return web.Response(text="Ok.\n")

    async def _play(self, http: web.Request) -> web.Response:
        """Answer with the query page or one of its files; `/` decides on the queries that it sends."""
        name = http.match_info.get("name", "play.html")
        if name not in _PLAY:
            raise web.HTTPNotFound(text="there is /play alone\n")
        kind = _TYPES[Path(name).suffix]
        return web.Response(body=_PLAY[name], content_type=kind, charset="utf-8", headers=_PLAY_HEADERS)

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        try:
            account = authenticate(self._accounts, http.headers, http.query)
            request = await read_request(http)
            if http.method == "GET" and not request.query.get("query"):
                return web.Response(text="Ok.\n")
            reply = Reply(http, request, self._engine.timezone)
            session = request.query.get("session_id")
            if session:
                return await self._in_session(request, reply, account, session)
            connection = await self._run(self._engine.connect)
            try:
                await self._run(connection.prepare, request.database, request.settings, False)
                await self._load_external(connection, request)
                if account.readonly or request.readonly:
                    await self._run(connection.prepare, "", {}, True)
                return await self._execute(connection, request, reply, False)
            finally:
                await self._run(connection.close)
        except (StoreError, UnicodeError) as failure:
            error = failure if isinstance(failure, StoreError) else StoreError(SYNTAX_ERROR, _NO_TEXT)
            self._failed(error)
            return failed(error)

    async def _in_session(
        self, request: Request, reply: Reply, account: Account, name: str
    ) -> web.StreamResponse:
        must_exist = request.query.get("session_check", "0") == "1"
        # Before it is entered: nothing may fail between that and `leave_session`, or it stays locked.
        keep_seconds = _session_seconds(request)
        connection = await self._run(
            self._engine.enter_session, account.name, name, must_exist, account.readonly
        )
        try:
            # A connection cannot leave its read-only mode: for a GET the statement's kind is checked instead.
            await self._run(connection.prepare, request.database, request.settings, False)
            try:
                await self._load_external(connection, request)
                return await self._execute(connection, request, reply, request.readonly)
            finally:
                await self._run(connection.reset, request.settings)
                for table in request.external:
                    await self._run(
                        connection.query, f"DROP TEMPORARY TABLE IF EXISTS {quoted_name(table.name)}"
                    )
        finally:
            self._engine.leave_session(account.name, name, keep_seconds)

    async def _load_external(self, connection: EngineConnection, request: Request) -> None:
        for table in request.external:
            name = quoted_name(table.name)
            create = f"CREATE TEMPORARY TABLE {name} ({table.columns})"
            await self._run(connection.check, create, False)
            await self._run(connection.query, create)
            await self._run(connection.insert, f"INSERT INTO {name}", table.format, table.data)

    async def _execute(
        self, connection: EngineConnection, request: Request, reply: Reply, only_reading: bool
    ) -> web.StreamResponse:
        head, text, rest = await split_statement(request)
        if head.verdict is Verdict.INSERT_INPUT:
            raise StoreError(
                NOT_IMPLEMENTED,
                "INSERT ... SELECT with data (input()) is not supported by the embedded store",
            )
        if head.verdict is Verdict.INSERT:
            await self._run(connection.check, head.head.decode() + " FORMAT Null", only_reading)
            written = await self._insert(connection, head, text[head.data_at :], rest)
            return reply.whole(Answer(b"", 0, 0, 0), None, written)
        if is_empty(text):
            raise StoreError(SYNTAX_ERROR, "Empty query. (SYNTAX_ERROR)")
        statement = text.decode()
        reads = await self._run(connection.check, statement, only_reading)
        named = output_format(text)
        chosen = named or request.default_format or DEFAULT_FORMAT
        hello = hello_block(request.query, text, self._engine.version, self._engine.timezone)
        if hello is not None:
            return reply.whole(Answer(hello, 0, 0, 1), "Native")
        wait = request.query.get("wait_end_of_query", "0") == "1"
        if is_select(text) and chosen.lower() in STREAMABLE and not wait:
            return await self._stream(connection, statement, reply, chosen)
        answer = await self._run(connection.query, statement, chosen)
        return reply.whole(answer, chosen if reads else None)

    async def _stream(
        self, connection: EngineConnection, statement: str, reply: Reply, chosen: str
    ) -> web.StreamResponse:
        blocks = connection.stream(statement, chosen)
        try:
            # Nothing is sent before the first block is there, so that an error can have its own status.
            first = await self._run(next, blocks, None)
            return await reply.streamed(self._blocks(first, blocks), chosen)
        finally:
            # When a client goes away, its query would otherwise keep running and the store busy.
            await self._run(blocks.close)

    async def _insert(
        self, connection: EngineConnection, head: Head, first: bytes, rest: AsyncIterator[bytes]
    ) -> tuple[int, int]:
        data = bytearray(first)
        async for piece in rest:
            data += piece
        return await self._run(connection.insert, head.head.decode(), head.format, data)

    async def _blocks(self, first: bytes | None, blocks: Iterator[bytes]) -> AsyncIterator[bytes]:
        block = first
        while block is not None:
            yield block
            try:
                block = await self._run(next, blocks, None)
            except StoreError as error:
                self._failed(error)
                raise

    async def _run(self, call: Callable[..., _T], *arguments: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)


@web.middleware
async def _in_its_form(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer requests that `listening` refuses in the form of a ClickHouse server."""
    try:
        return await handler(request)
    except ForeignPage as refused:
        return failed(StoreError(ACCESS_DENIED, refused.line))


def _session_seconds(request: Request) -> float:
    """Return for how long the session is kept after this request."""
    if request.query.get("close_session", "0") == "1":
        return 0.0
    seconds = whole_number(request.query.get("session_timeout", ""))
    return _DEFAULT_SESSION_SECONDS if seconds is None else min(float(seconds), _LONGEST_SESSION_SECONDS)
