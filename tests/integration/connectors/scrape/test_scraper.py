"""Pages over HTTP: whatever an engine answers is counters or one bounded reason, and costs nobody else."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping

import pytest
from aiohttp import web

from connectors.scrape import scraper as scraper_module
from connectors.scrape.scraper import Scraper
from schemas.events import EngineCounters
from schemas.reasons import FigureRefusal, ScrapeFailure

GOOD = 'vllm:prefix_cache_queries_total{engine="0"} 5\n'
ABSURD = (
    'vllm:cache_config_info{num_gpu_blocks="1000000000000000000000",block_size="5000000000"} 1.0\n'
    + 'vllm:prefix_cache_queries_total{engine="0"} 1e300\n'
    + 'vllm:prefix_cache_hits_total{engine="0"} 7\n'
)


class Told:
    """What the scraper said and delivered."""

    def __init__(self) -> None:
        self.read: Counter[str] = Counter()
        self.failed: dict[str, tuple[ScrapeFailure, str]] = {}
        self.refused: dict[str, Mapping[FigureRefusal, int]] = {}
        self.urls: set[str] = set()
        self.delivered: dict[str, EngineCounters] = {}

    def scraped(self, replica: str) -> None:
        self.read[replica] += 1

    def scrape_failed(self, replica: str, url: str, reason: ScrapeFailure, message: str) -> None:
        self.failed[replica] = reason, message
        self.urls.add(url)

    def figures_refused(self, replica: str, url: str, refused: Mapping[FigureRefusal, int]) -> None:
        self.refused[replica] = refused
        self.urls.add(url)

    def deliver(self, replica: str, rank: int, counters: EngineCounters) -> None:
        self.delivered[replica] = counters

    async def until(self, *replicas: str) -> None:
        deadline = time.monotonic() + 60
        while not set(replicas) <= self.read.keys() | self.failed.keys():
            assert time.monotonic() < deadline, (self.read, self.failed)
            await asyncio.sleep(0.02)


@pytest.fixture
async def pages() -> AsyncIterator[str]:
    """The address of a server with a page of each kind."""
    hung = asyncio.Event()

    async def page(request: web.Request) -> web.StreamResponse:
        kind = request.match_info["kind"]
        if kind == "hangs":
            await hung.wait()
            raise web.HTTPGone
        if kind == "status":
            raise web.HTTPBadGateway
        if kind == "bomb":
            return web.Response(body=gzip.compress(bytes(32 << 20)), headers={"Content-Encoding": "gzip"})
        if kind == "endless":
            response = web.StreamResponse()
            await response.prepare(request)
            while not hung.is_set():
                await response.write(b"# nothing\n" * 10_000)
            return response
        if kind in ("moved", "endlessly", "elsewhere"):
            host = request.url.with_host("localhost") if kind == "elsewhere" else request.url
            raise web.HTTPTemporaryRedirect(host.with_path("/endlessly" if kind == "endlessly" else "/good"))
        texts = {"good": GOOD, "absurd": ABSURD, "garbage": "vllm:prefix_cache_hits_total{} five\n"}
        return web.Response(text=texts[kind])

    application = web.Application()
    application.add_routes([web.get("/{kind}", page)])
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://user:hidden-word@127.0.0.1:{runner.addresses[0][1]}"
    hung.set()
    await runner.cleanup()


def _scraper(told: Told, timeout_seconds: float = 30.0) -> Scraper:
    scraper = Scraper(
        interval_seconds=0.5, timeout_seconds=timeout_seconds, deliver=told.deliver, telemetry=told
    )
    scraper.start()
    return scraper


async def test_each_page_is_counters_or_one_reason(pages: str) -> None:
    told = Told()
    scraper, hasty = _scraper(told), _scraper(told, timeout_seconds=0.3)
    kinds = (
        "good",
        "moved",
        "absurd",
        "garbage",
        "status",
        "bomb",
        "endless",
        "endlessly",
        "elsewhere",
        "hangs",
    )
    for kind in kinds:
        (hasty if kind == "hangs" else scraper).add(kind, f"{pages}/{kind}?token=hidden-word")
    scraper.add("gone", "http://127.0.0.1:1/metrics")
    scraper.add("no address", "http://[::1/metrics")
    await told.until(*kinds, "gone", "no address")
    await scraper.stop()
    await hasty.stop()
    assert told.delivered == {
        "good": EngineCounters(prefix_cache_queries=5),
        "moved": EngineCounters(prefix_cache_queries=5),
        "absurd": EngineCounters(prefix_cache_hits=7),
    }
    assert told.refused == {"absurd": {"too_large": 3}}
    assert {name: reason for name, (reason, _) in told.failed.items()} == {
        "garbage": "not_prometheus",
        "status": "http_status",
        "endlessly": "http_status",
        "elsewhere": "http_status",
        "bomb": "not_prometheus",
        "endless": "too_large",
        "hangs": "timeout",
        "gone": "unreachable",
        "no address": "unreachable",
    }
    assert "Connect" in told.failed["gone"][1]
    assert "hidden-word" not in f"{told.urls} {told.failed}"


async def test_a_failure_that_nobody_foresaw_is_told(pages: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise ArithmeticError("of the parser")

    monkeypatch.setattr(scraper_module, "parse_engine_metrics", fail)
    scraper = _scraper(Told())
    scraper.add("good", f"{pages}/good")
    assert scraper.task is not None
    with pytest.raises(ArithmeticError, match="of the parser"):
        await asyncio.wait_for(scraper.task, 60)
    await scraper.stop()
