"""The HTTP side of the index: questions in, answers out, each bounded in size and time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog
from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from connectors.process.addresses import bracketed
from connectors.process.limited_log import LogLimiter
from connectors.process.listening import ForeignPage, listening
from connectors.process.login import Login
from pipeline.index.answers import Answer, Problem, PromptsResponse, QueryResponse, ReplicasResponse
from pipeline.index.choices.endpoint import ChoicesEndpoint
from pipeline.index.choices.log import ChoiceLog
from pipeline.index.freshness import Freshness
from pipeline.index.index import Index
from pipeline.index.openapi import document
from pipeline.index.questions.question import MOST_HASHES, Asked, asked
from pipeline.index.questions.refused import QuestionRefused
from pipeline.index.telemetry import IndexMetrics
from schemas import settings
from schemas.reasons import QuestionRefusal

OPEN = ("/healthz", "/livez", "/readyz", "/metrics", "/openapi.json")
"""Paths that need no token: none of them names a replica or a block."""
BYTES_PER_HASH = 40
"""Of a request's JSON: no number takes more; with longer digests, ask about fewer blocks at once."""
BYTES_OVERHEAD = 16 << 10
BODY_SECONDS = 5.0
"""A request whose body takes longer gets no answer."""
MOST_ROWS = 50_000
"""Ranks of replicas in all answers to one request."""
MOST_AT_ONCE = 256
"""Questions whose bodies or answers are under way."""
ANSWER_SECONDS = 10.0
"""A client that takes longer to read an answer is disconnected."""
LARGE_BYTES = 64 << 10
"""Smaller answers fit into the socket's buffers at once."""
MOST_UNREAD_BYTES = 64 << 20
"""In all large answers that are being sent."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_log = structlog.get_logger(__name__)
_encode = msgspec.json.Encoder().encode


class IndexServer:
    """Serves answers until stopped."""

    def __init__(
        self,
        index: Index,
        freshness: Freshness,
        metrics: IndexMetrics,
        settings: settings.Index,
        choices: ChoiceLog | None = None,
    ) -> None:
        """`choices`: where routers' choices are written; None: nowhere."""
        self._choices = ChoicesEndpoint(index, freshness, metrics, settings, choices)
        self._index = index
        self._freshness = freshness
        self._metrics = metrics
        self._settings = settings
        self._login = Login(settings.token)
        self._limiter = LogLimiter()
        self._most_bytes = BYTES_OVERHEAD + BYTES_PER_HASH * MOST_HASHES
        self._runner: web.AppRunner | None = None
        self._under_way = 0
        self._unread_bytes = 0
        self.port = settings.port

    @property
    def url(self) -> str:
        return f"http://{bracketed(self._settings.host)}:{self.port}/"

    async def start(self) -> None:
        """Raises PortUnavailable."""
        application = web.Application(middlewares=[self._answered], client_max_size=self._most_bytes)
        application.add_routes(
            [
                web.post("/query_by_hash", self._query_by_hash),
                web.post("/choices", self._post_choices),
                web.get("/replicas", self._replicas),
                web.get("/healthz", self._healthz),
                web.get("/livez", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics_page),
                web.get("/openapi.json", self._openapi),
            ]
        )
        host, port = self._settings.host, self._settings.port
        self._runner = await listening(
            application,
            host,
            port,
            setting="index.port",
            login=bool(self._settings.token),
            handler_cancellation=True,
        )
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check the token; count refusals and failures, and answer them with a `Problem`."""
        try:
            if request.path not in OPEN and not await self._login.lets_in(request):
                raise QuestionRefused("no_token", "send the token: Authorization: Bearer TOKEN")
            return await handler(request)
        except QuestionRefused as refused:
            headers = {"Retry-After": "1"} if refused.status == 503 else {}
            return self._refused(refused.reason, refused.detail, refused.status, headers)
        except ForeignPage as refused:
            return self._refused(refused.why, refused.line, refused.status)
        except web.HTTPException as error:
            return self._refused("http_status", error.reason, error.status)
        except Exception as error:
            if (said := self._limiter.admit(type(error).__name__)) is not None:
                _log.exception("request failed", path=request.path, **said)
            return self._refused(
                "failed", f"the index failed ({type(error).__name__}); its log says where", 500
            )

    def _refused(
        self, reason: QuestionRefusal, detail: str, status: int, headers: dict[str, str] | None = None
    ) -> web.Response:
        self._metrics.refused.labels(reason).inc()
        return _json(Problem(reason, detail), status, headers)

    async def _query_by_hash(self, request: web.Request) -> web.Response:
        if self._under_way >= MOST_AT_ONCE:
            raise QuestionRefused("busy", f"{MOST_AT_ONCE} questions are under way")
        self._room_for(0)
        self._under_way += 1
        try:
            self._freshness.require_ready(time.monotonic())
            question = asked(await self._body(request), most_hashes=MOST_HASHES)
            began = time.perf_counter()
            answers = await self._answers(question)
            state = self._freshness.state(time.monotonic())
            if question.several:
                response: Any = PromptsResponse(answers, state)
            else:
                response = QueryResponse(answers[0].instances, answers[0].scores, state)
            body = _encode(response)
            if len(body) >= LARGE_BYTES and self._unread_bytes:
                self._room_for(len(body))
            self._metrics.requests.inc()
            self._metrics.prompts.inc(len(answers))
            self._metrics.answer_seconds.observe(time.perf_counter() - began)
            answer = web.Response(body=body, content_type="application/json")
            if len(body) >= LARGE_BYTES:
                await self._send(request, answer, len(body))
            return answer
        finally:
            self._under_way -= 1

    def _room_for(self, size: int) -> None:
        if self._unread_bytes + size > MOST_UNREAD_BYTES:
            raise QuestionRefused("busy", f"{self._unread_bytes:,} bytes of answers are not read yet")

    async def _send(self, request: web.Request, answer: web.Response, size: int) -> None:
        """Send an answer; return when all is read but what fits into the socket's buffers."""
        self._unread_bytes += size
        try:
            await answer.prepare(request)
            await asyncio.wait_for(answer.write_eof(), ANSWER_SECONDS)
        except asyncio.TimeoutError:
            self._metrics.refused.labels("slow_reader").inc()
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            return  # the client has left
        finally:
            self._unread_bytes -= size

    async def _post_choices(self, request: web.Request) -> web.Response:
        with self._choices.place():
            return _json(await self._choices.accept(await self._body(request)))

    async def _body(self, request: web.Request) -> bytes:
        if (request.content_length or 0) > self._most_bytes:
            raise self._too_large()
        try:
            if request.content.is_eof():
                return await request.read()
            return await asyncio.wait_for(request.read(), BODY_SECONDS)
        except web.HTTPRequestEntityTooLarge as error:
            raise self._too_large() from error
        except asyncio.TimeoutError as error:
            raise QuestionRefused("slow_body", f"not whole after {BODY_SECONDS:.0f} s") from error
        except web.RequestPayloadError as error:
            raise QuestionRefused("malformed", "the body is not what Content-Encoding says") from error

    def _too_large(self) -> QuestionRefused:
        return QuestionRefused("too_large", f"more than {self._most_bytes:,} bytes")

    async def _answers(self, question: Asked) -> list[Answer]:
        about, now = question.about, self._moment()
        scopes = self._index.scopes_of(about)
        answers: list[Answer] = []
        rows = 0
        for chains in question.chains.portions():
            if answers:
                await asyncio.sleep(0)  # let other requests run
                scopes = self._index.scopes_of(about)
            answers += (more := self._index.answers(about, scopes, chains, now))
            rows += sum(len(match.ranks) for answer in more for match in answer.instances.values())
            if rows > MOST_ROWS:
                detail = f"more than {MOST_ROWS:,} ranks in all answers: fewer prompts, or set limit"
                raise QuestionRefused("answer_too_large", detail)
        return answers

    async def _replicas(self, _request: web.Request) -> web.Response:
        self._freshness.require_ready(time.monotonic())
        state = self._freshness.state(time.monotonic())
        return _json(ReplicasResponse(self._index.replicas(self._moment()), state))

    def _moment(self) -> float:
        """Return the time up to which ages count, in seconds since the epoch."""
        return time.time() if self._freshness.at is None else self._freshness.at

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        reason = self._freshness.unready(time.monotonic())
        return web.Response(text=f"{reason or 'ok'}\n", status=503 if reason else 200)

    async def _metrics_page(self, _request: web.Request) -> web.Response:
        age = self._freshness.age(time.monotonic())
        self._metrics.age.set(age)
        self._metrics.lag.set(self._freshness.lag)
        page = generate_latest(self._metrics.registry)
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _openapi(self, _request: web.Request) -> web.Response:
        return _json(document())


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=_encode(value), status=status, content_type="application/json", headers=headers)
