"""Fetches the engines' metrics pages at intervals and turns them into notices of their streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import aiohttp
from yarl import URL

from connectors.process.addresses import shown
from connectors.process.pages import PageTooLarge, body_within, page_session
from connectors.process.stopping import ended
from connectors.scrape.counters import PageUnreadable, parse_engine_metrics
from schemas.events import EngineCounters
from schemas.reasons import FigureRefusal, ScrapeFailure

MIN_INTERVAL_SECONDS = 0.5
"""Shorter intervals are raised to this: a page of an engine takes milliseconds to make and to parse."""
ANSWER_SECONDS = 2.0
"""Longest time for reading a page of one engine."""
STAGGER_SECONDS = 0.01
"""Between the first pages of replicas that are added together."""


class ScrapeTelemetry(Protocol):
    """Where scrapes are counted."""

    def scraped(self, replica: str) -> None: ...
    def scrape_failed(self, replica: str, url: str, reason: ScrapeFailure, message: str) -> None: ...
    def figures_refused(self, replica: str, url: str, refused: Mapping[FigureRefusal, int]) -> None: ...


Deliver = Callable[[str, int, EngineCounters], None]
"""Called with replica id, data-parallel rank and the engine's counters of it."""


class Scraper:
    """Reads each replica's page in a task of its own, so that one that hangs or fails delays no other."""

    def __init__(
        self,
        *,
        interval_seconds: float,
        timeout_seconds: float = ANSWER_SECONDS,
        deliver: Deliver,
        telemetry: ScrapeTelemetry,
    ) -> None:
        self._interval_seconds = max(interval_seconds, MIN_INTERVAL_SECONDS)
        self._timeout_seconds = timeout_seconds
        self._deliver = deliver
        self._telemetry = telemetry
        self._tasks: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._session: aiohttp.ClientSession | None = None
        self._failed = asyncio.Event()
        self._failure: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        """Runs from the start to the stop; raises unexpected errors in reading a page."""

    def start(self) -> None:
        self.task = asyncio.create_task(self._watch(), name="scraper")

    def add(self, replica: str, url: str) -> None:
        """Begin to read the page of a replica, instead of its former page if it had one.

        The first read is at once, but a little later for each replica that is already there, so that the
        pages of replicas added together do not all come at the same time.
        """
        if self._session is None:
            self._session = page_session(self._timeout_seconds)
        if replica in self._tasks:
            if self._tasks[replica][0] == url:
                return
            self.remove(replica)
        delay = len(self._tasks) * STAGGER_SECONDS % self._interval_seconds
        task = asyncio.create_task(self._run(self._session, replica, url, delay), name=f"scrape-{replica}")
        task.add_done_callback(self._over)
        self._tasks[replica] = (url, task)

    def remove(self, replica: str) -> None:
        if replica in self._tasks:
            self._tasks.pop(replica)[1].cancel()

    async def stop(self) -> None:
        await ended(self.task, *(task for _, task in self._tasks.values()))
        self._tasks.clear()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _run(self, session: aiohttp.ClientSession, replica: str, url: str, delay: float) -> None:
        await asyncio.sleep(delay)
        while True:
            began = time.monotonic()
            await self._scrape(session, replica, url)
            await asyncio.sleep(max(0.0, began + self._interval_seconds - time.monotonic()))

    async def _scrape(self, session: aiohttp.ClientSession, replica: str, url: str) -> None:
        try:
            page = parse_engine_metrics(await fetched(session, url))
        except PageUnreadable as error:
            self._telemetry.scrape_failed(replica, shown(url), error.reason, str(error))
            return
        for rank, counters in page.ranks.items():
            self._deliver(replica, rank, counters)
        self._telemetry.scraped(replica)
        if page.refused:
            self._telemetry.figures_refused(replica, shown(url), page.refused)

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._failure = task.exception()
            self._failed.set()

    async def _watch(self) -> None:
        await self._failed.wait()
        assert self._failure is not None, "the reading of a page never ends by itself"
        raise self._failure


MAX_PAGE_BYTES = 8 << 20
_REDIRECTS = (301, 302, 303, 307, 308)


async def fetched(session: aiohttp.ClientSession, url: str) -> str:
    """Return the page at `url`, or where its server has it instead. Raises PageUnreadable."""
    try:
        place = URL(url)
        async with session.get(place, allow_redirects=False) as response:
            moved = _moved(place, response)
            if moved is None:
                return await _text(response)
        async with session.get(moved, allow_redirects=False) as response:
            return await _text(response)
    except PageTooLarge as error:
        raise PageUnreadable("too_large", str(error)) from error
    except asyncio.TimeoutError as error:
        raise PageUnreadable("timeout", "no whole page in time") from error
    except aiohttp.ClientConnectorError as error:
        message = error.os_error.strerror or type(error.os_error).__name__
        raise PageUnreadable("unreachable", message) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: invalid addresses
        # Their texts repeat the address, including what is secret in it.
        raise PageUnreadable("unreachable", type(error).__name__) from error


def _moved(place: URL, response: aiohttp.ClientResponse) -> URL | None:
    """Return where a redirect leads on the same server, as to a slash at the end; None if it does not."""
    if response.status not in _REDIRECTS:
        return None
    moved = place.join(URL(response.headers.get("Location", "")))
    if moved.origin() != place.origin():
        # An engine could lead the connector to whatever only that can reach.
        return None
    return moved.with_user(place.user).with_password(place.password)


async def _text(response: aiohttp.ClientResponse) -> str:
    if response.status >= 300:
        raise PageUnreadable("http_status", f"HTTP status {response.status}")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise PageUnreadable("not_prometheus", "compressed, which nobody asked for")
    return (await body_within(MAX_PAGE_BYTES, response)).decode(errors="replace")
