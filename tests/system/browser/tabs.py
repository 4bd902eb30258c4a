"""A headless Chromium with tabs that notice what goes wrong, and `kvlens serve` as a process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from deploy.bootstrap.browser import ADVICE, found
from pipeline.local.processes.command import page_answers
from schemas.settings import Settings
from tests.support.inputs.board_rows import PANEL_SECONDS

READY_MILLISECONDS = 240_000
"""For all panels of a board, on a machine that runs four tests at a time."""
expect.set_options(timeout=120_000)

SCREENSHOTS = Path("build/screenshots")
NO_BROKER = "127.0.0.1:1"
START_SECONDS = 240
SIZE: ViewportSize = {"width": 1440, "height": 1400}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = found()
    if not path:
        pytest.fail(ADVICE, pytrace=False)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
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
        self.page.wait_for_selector("body[data-ready=true]", timeout=READY_MILLISECONDS)

    def value(self, panel: str, name: str) -> float:
        """A figure of a panel as it is, before it was rounded for the eye."""
        shown = self.page.locator(f'#{panel} [data-figure="{name}"]')
        return float(shown.get_attribute("data-value", timeout=60_000) or "nan")

    def again(self) -> None:
        """Have every panel asked and drawn once more."""
        body = self.page.locator("body")
        before = body.get_attribute("data-round") or ""
        self.page.click("#now")
        expect(body).not_to_have_attribute("data-round", before, timeout=READY_MILLISECONDS)

    def fits(self, width: int) -> bool:
        """Tell whether the page is no wider than such a window, once its pictures have followed."""
        self.page.set_viewport_size({"width": width, "height": SIZE["height"]})
        for _ in range(30):
            if self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
                return True
            self.page.wait_for_timeout(100)
        return False

    def shot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


Open = Callable[..., Visit]


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Open]:
    """Open a tab on an origin; at the end nothing may have gone wrong in it nor out of it."""
    visits: list[Visit] = []

    def opened(origin: str, *, dark: bool = False, quiet: bool = True, zone: str | None = None) -> Visit:
        page = chromium.new_page(
            viewport=SIZE,
            color_scheme="dark" if dark else "light",
            timezone_id=zone,
            # To draw what moves while panels wait takes a browser without a GPU all of a core.
            reduced_motion="reduce",
        )
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
        assert not visit.problems, visit.problems
        assert not visit.foreign, visit.foreign


@dataclass
class Served:
    """`kvlens serve` as a process."""

    origin: str
    settings: Settings
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(60) == 0


def serve(settings: Settings, port: int, directory: Path, more: Mapping[str, str] | None = None) -> Served:
    environment = {
        **os.environ,
        "KVLENS_CLICKHOUSE__URL": settings.clickhouse.url,
        "KVLENS_CLICKHOUSE__DATABASE": settings.clickhouse.database,
        "KVLENS_PAGE__PORT": str(port),
        # How long a panel takes on a machine with other tests is not what they are about.
        "KVLENS_PAGE__PANEL_SECONDS": str(PANEL_SECONDS),
        "KVLENS_CLICKHOUSE__TIMEOUT_SECONDS": str(PANEL_SECONDS),
        "KVLENS_KAFKA__BOOTSTRAP_SERVERS": NO_BROKER,
        "PYTHONPATH": str(Path.cwd()),
        **(more or {}),
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
    return Served(origin, settings, process)
