"""Asks engines where they publish: after each start of a pod's containers, until they answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from connectors.discovery.kubernetes.described import (
    SGLANG_PATH,
    VLLM_PATH,
    Description,
    DescriptionMalformed,
    described,
)
from connectors.process.backoff import Backoff
from connectors.process.errors import DataError
from connectors.process.pages import PageTooLarge, body_within, page_session
from schemas.reasons import DescriptionFailure

PATHS = (VLLM_PATH, SGLANG_PATH)
MAX_BYTES = 1 << 20
AT_A_TIME = 256
ASK_SECONDS = 3.0
PATIENCE_SECONDS = 10.0
"""Longest wait for an engine's description before its pod is read without it."""
AGAIN = Backoff(first=0.5, longest=60.0)
MOST_MISSING = 17
"""How often a page may be missing or refused, in ten minutes: a proxy says so while its engine loads."""
NOTHING: Description = ()
_OK = 200
_MISSING = 404
_REFUSED = (401, 403)
_LATER = (408, 429)


class AskingTelemetry(Protocol):
    """Where failed questions are counted."""

    def description_failed(self, replica: str, url: str, reason: DescriptionFailure, text: str) -> None: ...


class _Unanswered(DataError):
    reason: DescriptionFailure
    text: str
    line = "{text}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine has said; not `final` if it only counts until the engine answers."""

    description: Description
    final: bool


@dataclass(frozen=True, slots=True)
class AskedEngine:
    """An engine to ask: the same pod, started again, is another one."""

    replica: str
    uid: str
    restarts: int
    url: str


class Descriptions:
    """What engines say about themselves.

    An engine that has no such page, or refuses it, says nothing; it is asked MOST_MISSING times before that
    is final. One that does not answer is asked again and again; after PATIENCE_SECONDS it counts as saying
    nothing until it does.
    """

    def __init__(self, telemetry: AskingTelemetry) -> None:
        self._telemetry = telemetry
        self._tasks: dict[AskedEngine, asyncio.Task[None]] = {}
        self._answers: dict[AskedEngine, Answer] = {}
        self._turns = asyncio.Semaphore(AT_A_TIME)
        self._session: aiohttp.ClientSession | None = None
        self._answered: Callable[[], None] = lambda: None
        self._settled = asyncio.Event()

    def on_answer(self, answered: Callable[[], None]) -> None:
        """Have `answered` called after each new answer."""
        self._answered = answered

    def ask(self, engines: Iterable[AskedEngine]) -> Mapping[AskedEngine, Answer]:
        """Ask all of these and nobody else; return what they have said so far.

        Raises unexpected errors of questions.
        """
        wanted = set(engines)
        for engine in self._tasks.keys() - wanted:
            self._tasks.pop(engine).cancel()
            self._answers.pop(engine, None)
        for engine in wanted - self._tasks.keys():
            task = self._tasks[engine] = asyncio.create_task(self._ask(engine), name="description")
            task.add_done_callback(lambda _: self._settled.set())
        for task in self._tasks.values():
            if task.done():
                task.result()
        return self._answers

    async def settled(self) -> None:
        """Return when each engine has answered, patience with it has ended, or its question failed."""
        while any(not self._tasks[engine].done() for engine in self._tasks.keys() - self._answers.keys()):
            self._settled.clear()
            await self._settled.wait()

    async def close(self) -> None:
        """Stop asking."""
        self.ask(())
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, engine: AskedEngine) -> None:
        """Ask until there is an answer."""
        giving_up = asyncio.get_running_loop().call_later(
            PATIENCE_SECONDS, self._note, engine, Answer(NOTHING, False)
        )
        failures = missing = 0
        try:
            while True:
                try:
                    async with self._turns:
                        answer = await self._answer(engine)
                except _Unanswered as failure:
                    failures += 1
                    self._failed(engine, failure.reason, str(failure))
                else:
                    missing += answer is None
                    final = answer is not None or missing == MOST_MISSING
                    self._note(engine, Answer(answer or NOTHING, final))
                    if final:
                        return
                    failures = missing
                await asyncio.sleep(AGAIN.pause(failures))
        finally:
            giving_up.cancel()

    def _failed(self, engine: AskedEngine, reason: DescriptionFailure, text: str) -> None:
        self._telemetry.description_failed(engine.replica, engine.url, reason, text)

    def _note(self, engine: AskedEngine, answer: Answer) -> None:
        if self._answers.get(engine) == answer:
            return
        self._answers[engine] = answer
        self._settled.set()
        self._answered()

    async def _answer(self, engine: AskedEngine) -> Description | None:
        """Return what the first page that makes sense says; None where none is shown. Raises _Unanswered."""
        exists = False
        refused: list[str] = []
        for path in PATHS:
            status, page = await self._page(engine.url + path)
            if status in _REFUSED:
                refused.append(f"HTTP status {status} at {path}")
            exists |= status not in (_MISSING, *_REFUSED)
            if status != _OK:
                continue
            try:
                return described(path, page)
            except DescriptionMalformed as error:
                # Asked again, it would say the same.
                self._failed(engine, "malformed", str(error))
        if refused:
            self._failed(engine, "refused", ", ".join(refused))
        return NOTHING if exists else None

    async def _page(self, url: str) -> tuple[int, bytes]:
        """Return the status and, with _OK, the page. Raises _Unanswered."""
        if self._session is None:
            self._session = page_session(ASK_SECONDS, reuse=False)
        try:
            async with self._session.get(url, allow_redirects=False) as response:
                if response.status >= 500 or response.status in _LATER:
                    raise _Unanswered("http_status", f"HTTP status {response.status}")
                page = await body_within(MAX_BYTES, response) if response.status == _OK else b""
                return response.status, page
        except PageTooLarge as error:
            raise _Unanswered("too_large", str(error)) from error
        except asyncio.TimeoutError as error:
            raise _Unanswered("timeout", f"no whole answer in {ASK_SECONDS:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _Unanswered("unreachable", type(error).__name__) from error
