"""Takes every board of a fleet of 7 and of one of 500 replicas, to be looked at: `make shots`.

Light and dark, on a desk and on a phone; pictures go to build/shots. Figures are made up, without sense.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, sync_playwright

from deploy.bootstrap.browser import ADVICE, found
from pipeline.clickhouse.client import connect
from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.page.server import FINDINGS_BOARD
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.local.processes.ports import free_port
from tests.support.inputs.board_rows import migrated
from tests.support.inputs.large_fleet import LargeFleet
from tests.system.browser.tabs import READY_MILLISECONDS, Served, serve

SHOTS = Path("build/shots")
FLEETS = {7: LargeFleet(7, 2, 2, 20), 500: LargeFleet(500, 5, 2, 20)}
HOUR = timedelta(hours=1)
WIDTHS = {"desk": 1440, "phone": 390}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SETTLED_MILLISECONDS = 700
"""In which charts follow another size."""


def filled(store: EmbeddedStore, fleet: LargeFleet, until: datetime) -> Served:
    """Serve an hour of a fleet's rows from a database of its own."""
    settings = migrated(store)
    client = connect(settings.clickhouse)
    client.database = settings.clickhouse.database
    fleet.write_day(client, until, fine=HOUR, day=2 * HOUR)
    client.close()
    return serve(settings, free_port(), Path(tempfile.gettempdir()))


def take(browser: Browser, served: Served, until: datetime, replicas: int) -> None:
    end = int(until.timestamp()) - 1
    page = browser.new_page(timezone_id="UTC")
    for board in BOARDS:
        page.goto(f"{served.origin}/?board={board.id}&from={end - 3599}&to={end}&refresh=0")
        page.wait_for_selector("body[data-ready=true]", timeout=READY_MILLISECONDS)
        if board.id == FINDINGS_BOARD:
            page.wait_for_selector(".doctor[data-verdict]", timeout=READY_MILLISECONDS)
        for (place, width), scheme in itertools.product(WIDTHS.items(), SCHEMES):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            page.wait_for_timeout(SETTLED_MILLISECONDS)
            page.screenshot(path=SHOTS / f"{board.id}-{replicas}-{place}-{scheme}.png", full_page=True)
    page.close()


def main() -> None:
    path = found()
    if path is None:
        raise SystemExit(ADVICE)
    SHOTS.mkdir(parents=True, exist_ok=True)
    until = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0)
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        store = EmbeddedStore(Path(directory) / "store", free_port())
        store.start()
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            for replicas, fleet in FLEETS.items():
                served = filled(store, fleet, until)
                try:
                    take(browser, served, until, replicas)
                finally:
                    served.stop()
        finally:
            browser.close()
            store.stop()
    sys.stdout.write(f"{len(list(SHOTS.glob('*.png')))} pictures are in {SHOTS}\n")


if __name__ == "__main__":
    main()
