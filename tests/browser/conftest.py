"""A headless Chromium, and `kvlens serve` in front of a store that has an hour of rows."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from deploy.bootstrap.browser import VARIABLE, found
from pipeline.local.process import page_answers
from pipeline.local.store.embedded import EmbeddedStore
from schemas.settings import Settings
from tests.pipeline.dashboards.conftest import hour_of_rows, migrated, write_rows

SCREENSHOTS = Path("build/screenshots")
START_SECONDS = 30
SIZE = {"width": 1440, "height": 1400}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = found()
    assert path, f"no Chromium: run `make test`, which gets one, or set {VARIABLE}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Visit:
    """A tab and what went wrong or out in it."""

    page: Page
    origin: str
    problems: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def open(self, query: str) -> None:
        """Go to a board and wait until its figures are there."""
        self.page.goto(f"{self.origin}/?{query}")
        self.settled()

    def settled(self) -> None:
        self.page.wait_for_selector("body[data-ready=true]", timeout=20_000)

    def shot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


Open = Callable[..., Visit]


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Open]:
    """Open a tab on an origin; at the end nothing may have gone wrong in it nor out of it."""
    visits: list[Visit] = []

    def opened(origin: str, *, dark: bool = False, quiet: bool = True) -> Visit:
        page = chromium.new_page(viewport=SIZE, color_scheme="dark" if dark else "light")  # type: ignore[arg-type]
        visit = Visit(page, origin)
        if quiet:
            page.on(
                "console",
                lambda message: visit.problems.append(message.text) if message.type == "error" else None,
            )
        page.on("pageerror", lambda error: visit.problems.append(str(error)))
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith(origin + "/") else visit.foreign.append(request.url)
            ),
        )
        visits.append(visit)
        return visit

    yield opened
    for visit in visits:
        visit.page.close()
        assert visit.problems == []
        assert visit.foreign == []


@dataclass
class Served:
    """`kvlens serve` as a process."""

    origin: str
    process: subprocess.Popen[bytes]


def serve(settings: Settings, port: int, directory: Path) -> Served:
    environment = {
        **os.environ,
        "KVLENS_CLICKHOUSE__URL": settings.clickhouse.url,
        "KVLENS_CLICKHOUSE__DATABASE": settings.clickhouse.database,
        "KVLENS_PAGE__PORT": str(port),
        "PYTHONPATH": str(Path.cwd()),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline.cli.main", "serve"], cwd=directory, env=environment
    )
    origin = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + START_SECONDS
    while not page_answers(f"{origin}/livez"):
        assert process.poll() is None, "kvlens serve ended"
        assert time.monotonic() < deadline, "kvlens serve did not answer in time"
        time.sleep(0.1)
    return Served(origin, process)


@pytest.fixture(scope="module")
def served(
    store: EmbeddedStore, free_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    settings = migrated(store)
    write_rows(settings, hour_of_rows())
    server = serve(settings, free_port(), tmp_path_factory.mktemp("serve"))
    yield server
    server.process.terminate()
    assert server.process.wait(10) == 0
