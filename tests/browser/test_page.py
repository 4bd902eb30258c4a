"""The page in a real browser: boards on rows, figures equal to SQL's, controls, a store that goes away."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.page.answers import FRESH_SECONDS
from pipeline.local.store.embedded import EmbeddedStore
from tests.browser.conftest import Open, Served, serve
from tests.pipeline.dashboards.conftest import HOUR, hour_of_rows, migrated, write_rows

START = int(HOUR.timestamp())
RANGE = f"from={START}&to={START + 3599}&refresh=0"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("board", BOARDS, ids=[board.id for board in BOARDS])
def test_a_board_shows_a_picture_in_each_panel(
    served: Served, visit: Open, board: object, dark: bool
) -> None:
    tab = visit(served.origin, dark=dark)
    tab.open(f"board={board.id}&{RANGE}")  # type: ignore[attr-defined]
    drawn = {"stat": ".figure", "timeseries": "canvas", "stacked": "canvas", "heatmap": "canvas",
             "bar": ".bar", "table": "td", "state_timeline": ".strip"}  # fmt: skip
    for panel in board.panels:  # type: ignore[attr-defined]
        section = tab.page.locator(f"#{panel.id}")
        assert section.locator(drawn[panel.kind]).count() > 0, panel.id
        assert section.locator(".note").count() == 0, panel.id
        assert section.get_by_text(panel.title, exact=True).count() > 0
    tab.shot(f"{board.id}-{'dark' if dark else 'light'}")  # type: ignore[attr-defined]


def test_figures_on_the_page_are_those_of_the_rows(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open(f"board=fleet&{RANGE}")

    def value(panel: str, name: str) -> float:
        return float(
            tab.page.locator(f'#{panel} [data-figure="{name}"]').get_attribute("data-value") or "nan"
        )

    assert [value("fleet-sources", trust) for trust in ("complete", "partial", "degraded")] == [1, 0, 1]
    assert value("fleet-gpu-full", "full") == 0.5
    assert value("fleet-evicted-now", "evicted") == 32
    assert tab.page.locator("#fleet-occupancy .sr").text_content() == (
        "Cached tokens by medium, newest: cpu 320, gpu 1.28 k"
    )
    cells = tab.page.locator("#fleet-replicas tbody tr").first.locator("td").all_text_contents()
    assert cells == ["m", "a", "36,000", "32,400", "60", "20", "10", "10", "0", "90", "complete"]


def test_choices_narrow_the_figures_and_the_address_keeps_them(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open(f"board=replica&{RANGE}")
    occupancy = tab.page.locator("#replica-occupancy .sr")
    assert occupancy.text_content() == "Cached tokens by medium, newest: cpu 320, gpu 1.28 k"
    tab.page.fill("#replica", "b")
    tab.page.press("#replica", "Enter")
    expect(occupancy).to_have_text("Cached tokens by medium, newest: cpu 160, gpu 640")
    assert "replica=b" in tab.page.url
    tab.page.reload()
    tab.settled()
    assert occupancy.text_content() == "Cached tokens by medium, newest: cpu 160, gpu 640"
    tab.page.get_by_role("link", name="Pipeline health").click()
    tab.page.wait_for_selector("#health-streams td")
    assert "board=health" in tab.page.url
    assert "replica=b" in tab.page.url
    tab.page.select_option("#range", "900")
    expect(tab.page).to_have_url(re.compile("range=900"))
    tab.page.go_back()
    expect(tab.page).to_have_url(re.compile("from="))


def test_a_board_without_rows_says_so(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    early = START - 40 * 86400
    tab.open(f"board=fleet&from={early}&to={early + 3600}&refresh=0")
    assert "Nothing in this range yet" in (tab.page.locator("#fleet-occupancy").text_content() or "")


def test_everything_can_be_reached_by_keyboard_and_has_a_name(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open(f"board=fleet&{RANGE}")
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.textContent") == "Skip to the board"
    nameless = tab.page.evaluate(
        """[...document.querySelectorAll('a, button, select, input, summary')]
        .filter((each) => !(each.ariaLabel || each.textContent.trim() || each.labels?.length)).length"""
    )
    assert nameless == 0
    assert tab.page.locator("section[aria-labelledby]").count() == len(BOARDS[0].panels)


@pytest.fixture
def own_store(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[EmbeddedStore]:
    store = EmbeddedStore(tmp_path / "store", free_port())
    store.start()
    yield store
    store.kill()


def test_a_store_that_goes_away_is_shown_and_survived(
    own_store: EmbeddedStore, visit: Open, free_port: Callable[[], int], tmp_path: Path
) -> None:
    settings = migrated(own_store)
    write_rows(settings, hour_of_rows())
    server = serve(settings, free_port(), tmp_path)
    try:
        tab = visit(server.origin, quiet=False)
        tab.open(f"board=fleet&{RANGE}")
        banner = tab.page.locator("#banner")
        assert banner.is_hidden()
        own_store.kill()
        tab.page.wait_for_timeout(FRESH_SECONDS * 1000)  # so long an answer serves again
        tab.page.click("#now")
        banner.wait_for(state="visible", timeout=20_000)
        assert re.search(r"ClickHouse at .* cannot be used", banner.text_content() or "")
        # The old figures stay, dimmed.
        assert tab.page.locator("#fleet-gpu-full .stale .figure").text_content() == "50 %"
        own_store.start()
        banner.wait_for(state="hidden", timeout=30_000)
        assert tab.page.locator(".stale").count() == 0
    finally:
        server.process.terminate()
        server.process.wait(10)
