"""Takes the pictures of the README from a demo that has told its whole story: `make screenshots`.

The first one moves: the top of the board Fleet at the end of each chapter.
"""

from __future__ import annotations

import base64
import io
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from deploy.bootstrap.browser import found
from pipeline.dashboards.boards import BOARDS
from pipeline.local.demo.story import STORY

IMAGES = Path("docs/images")
MAX_BYTES = 150_000
MAX_MOVING_BYTES = 400_000
SIZE: ViewportSize = {"width": 1440, "height": 900}
QUALITY = 76
AFTER_SECONDS = 30
"""So much of the last chapter's consequences is to be seen."""
BEFORE_SECONDS = 10
ON_TOP = ("fleet-answer", "fleet-findings", "fleet-fills", "fleet-hit-rates")
"""Panels of the first picture of the README, which is wide and low."""
FRAME_SECONDS = 2.5
LAST_FRAME_SECONDS = 6.0


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
                if STORY[0].line in line:
                    began = int(time.time())
                if STORY[-1].line in line:
                    break
            else:
                raise SystemExit("the demo ended before its story did")
            time.sleep(AFTER_SECONDS)
            yield url, began - BEFORE_SECONDS, int(time.time()) // 10 * 10 - 1
        finally:
            demo.terminate()


@contextmanager
def shown(browser: Browser, url: str, only: Sequence[str] = ()) -> Iterator[Page]:
    """Open one board, or some panels of it, as high as it is."""
    page = browser.new_page(viewport=SIZE)
    page.goto(url)
    page.wait_for_selector("body[data-ready=true]", timeout=120_000)
    if page.locator(".doctor").count():
        page.wait_for_selector(".doctor[data-verdict]", timeout=120_000)
    if page.locator(".note.problem").count():
        raise SystemExit(f"{url}: {page.locator('.note.problem').first.text_content()}")
    if only:
        # The page takes no style sheet from elsewhere.
        page.evaluate(
            """(kept) => {
                for (const each of document.querySelectorAll("#board .panel, #board h2"))
                    each.hidden = !kept.includes(each.id);
                // Titles of sections keep them apart.
                for (const each of document.querySelectorAll("#board .grid")) {
                    each.hidden = !each.querySelector(".panel:not([hidden])");
                    each.style.marginTop = "12px";
                }
            }""",
            list(only),
        )
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": SIZE["width"], "height": height})
    page.wait_for_timeout(500)
    yield page
    page.close()


def take(browser: Browser, url: str, name: str) -> None:
    """Write one board as WebP, which Playwright itself does not offer."""
    with shown(browser, url) as page:
        picture = page.context.new_cdp_session(page).send(
            "Page.captureScreenshot", {"format": "webp", "quality": QUALITY}
        )
    write(name, base64.b64decode(picture["data"]), MAX_BYTES)


def take_moving(browser: Browser, urls: Sequence[str], name: str) -> None:
    """Write the top of a board at several moments, as one WebP that shows them in turn without end."""
    taken = []
    for url in urls:
        with shown(browser, url, ON_TOP) as page:
            taken.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
    height = max(frame.height for frame in taken)
    even = [Image.new("RGB", (frame.width, height), frame.getpixel((0, frame.height - 1))) for frame in taken]
    for whole, frame in zip(even, taken, strict=True):
        whole.paste(frame)
    seconds = [FRAME_SECONDS] * (len(even) - 1) + [LAST_FRAME_SECONDS]
    content = io.BytesIO()
    even[0].save(
        content,
        "WEBP",
        save_all=True,
        append_images=even[1:],
        duration=[int(1000 * each) for each in seconds],
        loop=0,
        quality=QUALITY,
        method=6,
    )
    write(name, content.getvalue(), MAX_MOVING_BYTES)


def write(name: str, content: bytes, most: int) -> None:
    if len(content) > most:
        raise SystemExit(f"{name}: {len(content)} bytes are more than {most}")
    (IMAGES / f"{name}.webp").write_bytes(content)


def frames(start: int, began: int, end: int) -> list[tuple[int, int]]:
    """Return the ranges of the moving picture: up to when each chapter has shown what it does.

    They go as far as ten-second windows do. The last is the second half, which has a range before it.
    """
    starts = sorted({began + int(chapter.seconds) for chapter in STORY[1:]})
    return [*((start, each // 10 * 10 - 1) for each in starts), ((start + end) // 20 * 10, end)]


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
        first, *others = BOARDS
        moments = [
            f"{url}?board={first.id}&from={since}&to={until}&refresh=0"
            for since, until in frames(start, start + BEFORE_SECONDS, end)
        ]
        take_moving(browser, moments, first.id)
        for board in others:
            take(browser, f"{url}?board={board.id}&from={start}&to={end}&refresh=0", board.id)
        browser.close()


if __name__ == "__main__":
    main()
