"""Takes the pictures of the README from a demo that has told its whole story: `make screenshots`."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, ViewportSize, sync_playwright

from deploy.bootstrap.browser import found
from pipeline.dashboards.boards import BOARDS
from pipeline.local.demo.story import STORY

IMAGES = Path("docs/images")
MAX_BYTES = 150_000
SIZE: ViewportSize = {"width": 1440, "height": 900}
QUALITY = 76
AFTER_SECONDS = 30
"""So much of the last chapter's consequences is to be seen."""
BEFORE_SECONDS = 10
ON_TOP = ("fleet-answer", "fleet-findings", "fleet-fills", "fleet-hit-rates")
"""Panels of the first picture of the README, which is wide and low."""


@contextmanager
def told_demo(data: Path) -> Iterator[tuple[str, int, int]]:
    """Run a demo through its story; yield the page's address and the range in which it happened."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KVLENS_")}
    command = [sys.executable, "-m", "pipeline.cli.main", "demo", "--data-dir", str(data)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        try:
            url, began = "", 0
            for line in demo.stdout:
                sys.stderr.write(line)
                address = re.search(r"boards are on (http\S+)", line)
                url = address[1] if address else url
                if STORY[0].tells in line:
                    began = int(time.time())
                if STORY[-1].tells in line:
                    break
            else:
                raise SystemExit("the demo ended before its story did")
            time.sleep(AFTER_SECONDS)
            yield url, began - BEFORE_SECONDS, int(time.time()) // 10 * 10 - 1
        finally:
            demo.terminate()


def take(browser: Browser, url: str, name: str, only: Sequence[str] = ()) -> None:
    """Write one board, or some panels of it, as WebP, which Playwright itself does not offer."""
    page = browser.new_page(viewport=SIZE)
    page.goto(url)
    page.wait_for_selector("body[data-ready=true]", timeout=120_000)
    if only:
        # The page takes no style sheet from elsewhere.
        page.evaluate(
            "(kept) => document.querySelectorAll('#board .panel, #board h2')"
            ".forEach((each) => { each.hidden = !kept.includes(each.id); })",
            list(only),
        )
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": SIZE["width"], "height": height})
    page.wait_for_timeout(500)
    picture = page.context.new_cdp_session(page).send(
        "Page.captureScreenshot", {"format": "webp", "quality": QUALITY}
    )
    content = base64.b64decode(picture["data"])
    if len(content) > MAX_BYTES:
        raise SystemExit(f"{name}: {len(content)} bytes are more than {MAX_BYTES}")
    (IMAGES / f"{name}.webp").write_bytes(content)
    page.close()


def main() -> None:
    path = found()
    if path is None:
        raise SystemExit("no Chromium: run `make test`, which gets one")
    IMAGES.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as data,
        told_demo(Path(data)) as (url, start, end),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for board in BOARDS:
            only = ON_TOP if board is BOARDS[0] else ()
            take(browser, f"{url}?board={board.id}&from={start}&to={end}&refresh=0", board.id, only)
        browser.close()


if __name__ == "__main__":
    main()
