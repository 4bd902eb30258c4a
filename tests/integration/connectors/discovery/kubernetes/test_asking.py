"""Engines asked over real HTTP where they publish."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from connectors.discovery.kubernetes import asking, pod_watch
from connectors.discovery.kubernetes.origin import PodOrigin
from connectors.process.backoff import Backoff
from schemas.discovery_settings import Kubernetes
from tests.support.kube_api import KubeApi
from tests.support.pods import Told, pod_document

LABELS = {"app": "vllm"}
SOURCES = [{"data_parallel_rank": 0, "endpoint": "tcp://*:40001", "replay_endpoint": None, "topic": "kv"}]


class Engine:
    """The HTTP server of an engine."""

    def __init__(self) -> None:
        self.pages: dict[str, Any] = {}
        """path -> what it answers, a status, or bytes."""
        self.asked: list[str] = []
        self.delay = 0.0
        self.port = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Engine]:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        await asyncio.sleep(self.delay)
        page = self.pages.get(request.path, 404)
        if isinstance(page, int):
            return web.Response(status=page, headers={"Location": "/elsewhere"})
        if isinstance(page, bytes):
            return web.Response(body=page)
        return web.json_response(page)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_watch, "LEAST_SECONDS", 0.05)
    monkeypatch.setattr(asking, "ASK_SECONDS", 30.0)
    monkeypatch.setattr(asking, "PATIENCE_SECONDS", 60.0)


@contextlib.asynccontextmanager
async def following(
    engine: Engine, meanwhile: Callable[[], Awaitable[None]] | None = None, **pod: Any
) -> AsyncIterator[tuple[PodOrigin, Told, KubeApi]]:
    """`meanwhile` happens between the start and the following."""
    kube = KubeApi()
    await kube.start()
    kube.put(pod_document("a", ip="127.0.0.1", labels=LABELS, **pod))
    entry = Kubernetes(
        selector="app=vllm",
        namespaces=("ml",),
        model="m",
        token_file="",
        api_url=kube.url,
        http_port=engine.port,
    )
    told = Told()
    origin = PodOrigin(0, entry, lambda replica: True, told)
    await origin.begin()
    if meanwhile is not None:
        await meanwhile()
    task = asyncio.create_task(origin.follow(lambda: None))
    try:
        yield origin, told, kube
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await kube.stop()


def endpoints(origin: PodOrigin) -> list[str]:
    return [source.endpoint for source in origin.sources]


async def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline, "not reached"
        await asyncio.sleep(0.02)


async def test_an_engine_is_asked_once_a_life() -> None:
    engine = Engine()
    engine.pages["/kv_event_sources"] = SOURCES
    async with engine.running(), following(engine) as (origin, told, kube):
        assert endpoints(origin) == ["tcp://127.0.0.1:40001"]
        await until(lambda: kube.watching == 1)
        kube.put(pod_document("a", ip="127.0.0.1", labels={**LABELS, "b": "c"}, ready=False))
        kube.end_watches()
        await until(lambda: kube.lists == 2 and kube.watching == 1)
        assert engine.asked == ["/kv_event_sources"]
        engine.pages["/kv_event_sources"] = [{**SOURCES[0], "endpoint": "tcp://*:40009"}]
        kube.put(pod_document("a", ip="127.0.0.1", labels=LABELS, starts=1))
        await until(lambda: endpoints(origin) == ["tcp://127.0.0.1:40009"])
        kube.put(pod_document("a", uid="u2", ip="127.0.0.1", labels=LABELS))
        await until(lambda: [source.session_name for source in origin.sources] == ["u2"])
        assert engine.asked == ["/kv_event_sources"] * 3
        assert told.unanswered == []


async def test_an_answer_counts_that_comes_before_pods_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "AGAIN", Backoff(first=0.01, longest=0.05))
    engine = Engine()

    async def answer() -> None:
        engine.pages["/kv_event_sources"] = SOURCES
        await asyncio.sleep(0.5)

    async with engine.running(), following(engine, answer) as (origin, _, _):
        await until(lambda: endpoints(origin) == ["tcp://127.0.0.1:40001"])


async def test_a_question_that_fails_as_nobody_expected_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(asking, "described", failing)
    engine = Engine()
    engine.pages["/kv_event_sources"] = SOURCES
    async with engine.running():
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(following(engine).__aenter__(), 30)


async def test_sglang_is_asked_where_vllm_has_no_page() -> None:
    engine = Engine()
    engine.pages["/server_info"] = {
        "kv_events": {"publisher": "zmq", "endpoint_host": "*", "endpoint_port_base": 6000, "dp_size": 2}
    }
    async with engine.running(), following(engine) as (origin, _, _):
        assert endpoints(origin) == ["tcp://127.0.0.1:6000", "tcp://127.0.0.1:6001"]
        assert engine.asked == ["/kv_event_sources", "/server_info"]


async def test_redirects_lead_nowhere_and_the_engine_is_read_by_the_rest() -> None:
    engine = Engine()
    engine.pages = {"/kv_event_sources": 302, "/server_info": 302, "/elsewhere": SOURCES}
    async with engine.running(), following(engine, ports={"kv-events": 5556}) as (origin, told, _):
        assert endpoints(origin) == ["tcp://127.0.0.1:5556"]
        assert engine.asked == ["/kv_event_sources", "/server_info"]
        assert told.unanswered == []


@pytest.mark.parametrize(
    ("first", "second", "told_each_time"),
    [
        (404, 404, None),
        (401, 401, "HTTP status 401 at /kv_event_sources, HTTP status 401 at /server_info"),
        (404, 403, "HTTP status 403 at /server_info"),
    ],
)
async def test_an_engine_that_shows_no_page_is_read_by_the_rest_at_once_and_asked_a_few_times(
    monkeypatch: pytest.MonkeyPatch, first: int, second: int, told_each_time: str | None
) -> None:
    monkeypatch.setattr(asking, "AGAIN", Backoff(first=0.01, longest=0.05))
    engine = Engine()
    engine.pages = {"/kv_event_sources": first, "/server_info": second}
    async with engine.running(), following(engine, ports={"kv-events": 5556}) as (origin, told, _):
        assert endpoints(origin) == ["tcp://127.0.0.1:5556"]
        await until(lambda: len(engine.asked) >= 2 * asking.MOST_MISSING)
        await asyncio.sleep(0.3)
        assert engine.asked == ["/kv_event_sources", "/server_info"] * asking.MOST_MISSING
        assert endpoints(origin) == ["tcp://127.0.0.1:5556"]
        times = asking.MOST_MISSING if told_each_time else 0
        assert told.unanswered == [("a", "refused")] * times
        assert told.texts == [told_each_time] * times


@pytest.mark.parametrize("early", [404, 401, 403])
async def test_an_engine_behind_a_proxy_that_was_there_earlier_is_read_where_it_says(early: int) -> None:
    engine = Engine()
    of_the_proxy = dict.fromkeys(asking.PATHS, early)
    engine.pages.update(of_the_proxy)
    async with engine.running(), following(engine) as (origin, told, kube):
        assert endpoints(origin) == ["tcp://127.0.0.1:5557"]
        engine.pages["/kv_event_sources"] = SOURCES
        await until(lambda: endpoints(origin) == ["tcp://127.0.0.1:40001"])
        # Started again, with the proxy before the engine: what it said before counts meanwhile.
        engine.pages.update(of_the_proxy)
        asked = len(engine.asked)
        kube.put(pod_document("a", ip="127.0.0.1", labels=LABELS, starts=1))
        await until(lambda: len(engine.asked) >= asked + 4)
        assert endpoints(origin) == ["tcp://127.0.0.1:40001"]
        engine.pages["/kv_event_sources"] = [{**SOURCES[0], "endpoint": "tcp://*:40009"}]
        await until(lambda: endpoints(origin) == ["tcp://127.0.0.1:40009"])
        assert set(told.unanswered) == (set() if early == 404 else {("a", "refused")})


@pytest.mark.parametrize(
    ("page", "reason"),
    [(503, "http_status"), (429, "http_status"), (b"x" * (2 << 20), "too_large"), (b"{", "malformed")],
)
async def test_a_failure_is_counted_by_its_reason(
    page: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "PATIENCE_SECONDS", 3.0)
    engine = Engine()
    engine.pages["/kv_event_sources"] = page
    async with engine.running(), following(engine) as (origin, told, _):
        assert endpoints(origin) == ["tcp://127.0.0.1:5557"]
        await until(lambda: ("a", reason) in told.unanswered)
        assert {found for _, found in told.unanswered} == {reason}


async def test_an_engine_that_begins_to_answer_is_read_where_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "PATIENCE_SECONDS", 3.0)
    engine = Engine()
    engine.pages["/kv_event_sources"] = SOURCES
    async with engine.running():
        pass  # so that its port is known
    async with following(engine) as (origin, told, kube):
        assert endpoints(origin) == ["tcp://127.0.0.1:5557"]
        await until(lambda: ("a", "unreachable") in told.unanswered)
        async with engine.running():
            await until(lambda: endpoints(origin) == ["tcp://127.0.0.1:40001"])
        # Started again and silent: what it said before counts.
        kube.put(pod_document("a", ip="127.0.0.1", labels=LABELS, starts=1))
        before = len(told.unanswered)
        await until(lambda: len(told.unanswered) > before + 1)
        assert endpoints(origin) == ["tcp://127.0.0.1:40001"]


async def test_a_slow_engine_is_waited_for_at_the_start() -> None:
    engine = Engine()
    engine.pages["/kv_event_sources"] = SOURCES
    engine.delay = 0.3
    async with engine.running(), following(engine) as (origin, _, _):
        assert endpoints(origin) == ["tcp://127.0.0.1:40001"]


async def test_a_hanging_engine_is_not_waited_for_longer_than_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "ASK_SECONDS", 0.5)
    monkeypatch.setattr(asking, "PATIENCE_SECONDS", 0.7)
    engine = Engine()
    engine.delay = 600.0
    began = time.monotonic()
    async with engine.running(), following(engine) as (origin, told, _):
        assert endpoints(origin) == ["tcp://127.0.0.1:5557"]
        assert time.monotonic() - began < 300
        await until(lambda: ("a", "timeout") in told.unanswered)
