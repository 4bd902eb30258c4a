"""The page in a real browser: boards on rows, figures equal to SQL's, controls, a store that goes away."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import expect

from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.page.answers import AT_ONCE, FRESH_SECONDS
from pipeline.dashboards.panel import Board
from pipeline.dashboards.queries import TOP
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.rows import StreamHealthRow
from tests.support.inputs.board_rows import (
    HOUR,
    PANEL_SECONDS,
    hour_of_rows,
    migrated,
    window_rows,
    write_rows,
)
from tests.support.suite.night import by_day
from tests.system.browser.tabs import SIZE, Open, Served, serve

START = int(HOUR.timestamp())
DAY = timedelta(days=1)
RANGE = f"from={START}&to={START + 3599}&refresh=0"


DRAWN = {
    "stat": ".figure",
    "timeseries": "canvas",
    "stacked": "canvas",
    "heatmap": "canvas",
    "bar": ".bar",
    "table": "td",
    "state_timeline": ".strip",
    "curve": "canvas",
    "lanes": "canvas",
    "flow": "svg",
    "answer": ".card",
    "findings": "li",
}
CUT_OFF = """[...document.querySelectorAll('.name')].filter((each) => {
        const edges = (element) => element.getBoundingClientRect();
        const amount = each.closest('.legend') && each.nextSibling;
        const room = amount ? edges(amount).left : edges(each.parentElement).right;
        const cut = each.scrollWidth > each.clientWidth;
        return edges(each).right > room + 1 || cut !== each.classList.contains('cut');
    }).map((each) => each.textContent)"""
NAMELESS = """[...document.querySelectorAll(
    'a, button, select, input, summary, nav, form, [tabindex="0"], [role=img]')]
    .filter((each) => !(each.ariaLabel || each.textContent.trim() || each.labels?.length))
    .map((each) => each.outerHTML)"""


SMALLEST = [board for board in BOARDS if board.id == "replica"]


@pytest.mark.parametrize("board", by_day(BOARDS, SMALLEST), ids=[board.id for board in BOARDS])
def test_a_board_shows_a_picture_in_each_panel_and_names_what_it_shows(
    served: Served, visit: Open, board: Board
) -> None:
    tab = visit(served.origin)
    tab.open(f"board={board.id}&{RANGE}")
    assert tab.page.locator("nav [aria-current=page]").text_content() == board.title
    assert tab.page.evaluate(NAMELESS) == []
    assert tab.page.locator("section").count() == len(board.panels)
    for panel in board.panels:
        section = tab.page.locator(f"#{panel.id}")
        assert section.locator(DRAWN[panel.kind]).count() > 0, panel.id
        assert section.locator(".note").count() == 0, panel.id
        assert tab.page.locator(f"#{section.get_attribute('aria-labelledby')}").text_content() == panel.title
        # A canvas says nothing to a screen reader: a sentence, or a label, does.
        if section.locator("canvas").count():
            assert section.locator(".sr, [role=img][aria-label]").count() > 0, panel.id
    for width in (400, 700, SIZE["width"]):
        assert tab.fits(width), width


@pytest.mark.night
@pytest.mark.parametrize("board", BOARDS, ids=[board.id for board in BOARDS])
def test_a_board_is_drawn_again_in_the_dark(served: Served, visit: Open, board: Board) -> None:
    tab = visit(served.origin)
    tab.open(f"board={board.id}&{RANGE}")
    tab.shot(f"{board.id}-light")
    tab.page.emulate_media(color_scheme="dark")
    tab.again()
    tab.shot(f"{board.id}-dark")


def test_figures_on_the_page_are_those_of_the_rows(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open(f"board=fleet&{RANGE}")

    assert tab.value("fleet-gpu-full", "full") == 0.5
    assert tab.value("fleet-evicted-now", "evicted") == 32
    assert tab.page.locator("#fleet-occupancy .sr").text_content() == (
        "Cached tokens by medium, newest: cpu 320, gpu 1.28 k"
    )
    cells = tab.page.locator("#fleet-replicas tbody tr").first.locator("td").all_text_contents()
    assert cells == [
        "m",
        "a",
        "36,000",
        "32,400",
        "60",
        "0",
        "20",
        "10",
        "0",
        "10",
        "0",
        "90",
        "0",
        "0",
        "0",
        "\N{EN DASH}",
        "complete",
    ]


@pytest.mark.night
def test_streams_on_the_page_are_those_of_the_rows(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open(f"board=health&{RANGE}")
    assert [tab.value("fleet-sources", trust) for trust in ("complete", "partial", "degraded")] == [1, 0, 1]


@pytest.mark.night
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


@pytest.mark.night
def test_a_board_without_rows_says_so(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    early = START - 40 * 86400
    tab.open(f"board=fleet&from={early}&to={early + 3600}&refresh=0")
    told = tab.page.locator("#fleet-occupancy").text_content() or ""
    assert "No data for this range and these filters" in told
    # A sentence of its own takes no more room than it needs.
    findings = tab.page.locator("#fleet-findings")
    assert findings.locator(".note").count() == 1
    height = (findings.bounding_box() or {})["height"]
    assert "`" not in (tab.page.locator("#fleet-gpus-lost").text_content() or "")
    assert tab.page.locator("#fleet-gpus-lost .note code").first.text_content() == "gpus_per_replica"
    assert height < 34 * next(panel.height for panel in BOARDS[0].panels if panel.id == "fleet-findings")


@pytest.mark.night
def test_the_page_asks_again_by_itself_and_shows_what_is_new(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open("board=health&range=300&refresh=1&model=late")
    complete = tab.page.locator(
        '#health-sources [data-figure="complete"], #fleet-sources [data-figure="complete"]'
    )
    assert complete.get_attribute("data-value") == "0"
    now = datetime.now(timezone.utc).replace(microsecond=0)
    write_rows(
        served.settings,
        [msgspec.structs.replace(row, model="late", window=now - timedelta(seconds=now.second % 10 + 20))
         for row in hour_of_rows()[:12] if isinstance(row, StreamHealthRow)][:1],
    )  # fmt: skip
    expect(complete).to_have_attribute("data-value", "1", timeout=60_000)


@pytest.mark.night
def test_five_hundred_replicas_with_long_names_fit(served: Served, visit: Open) -> None:
    windows = range(6)
    long = "inference-cluster-europe-west4/deployment-of-a-large-model/replica-{:03d}"
    rows = [
        msgspec.structs.replace(row, model="many", replica=long.format(number), window=row.window - DAY)
        for window in windows
        for row in window_rows(window, "a")
        for number in range(500)
    ]
    write_rows(served.settings, rows)
    tab = visit(served.origin)
    start = START - int(DAY.total_seconds())
    for board in BOARDS:
        tab.open(f"board={board.id}&from={start}&to={start + 59}&refresh=0&model=many")
        assert tab.fits(SIZE["width"])
        for panel in board.panels:
            section = tab.page.locator(f"#{panel.id}")
            assert section.locator(".legend b, .bars .amount, .strip").count() <= TOP + 2, panel.id
            inner, outer = section.evaluate(
                "(each) => [each.querySelector('.body').scrollWidth, each.clientWidth]"
            )
            assert inner <= outer, panel.id
        assert tab.page.evaluate(CUT_OFF) == []
        tab.shot(f"{board.id}-many")


@pytest.mark.night
def test_the_browser_waits_for_as_long_as_the_store_may_take(served: Served, visit: Open) -> None:
    """Time runs out when the test says so; what was asked of the clock is noted."""
    tab = visit(served.origin, quiet=False)
    tab.page.add_init_script(
        """globalThis.waits = [];
        AbortSignal.timeout = (milliseconds) => {
            const late = new AbortController();
            waits.push({ milliseconds, end: () => late.abort(new DOMException("late", "TimeoutError")) });
            return late.signal;
        };"""
    )
    tab.page.route("**/api/panels/fleet-fills?*", lambda _route: None)
    with tab.page.expect_request("**/api/panels/fleet-fills?*"):
        tab.page.goto(f"{tab.origin}/?board=fleet&{RANGE}")
    shortest = min(tab.page.evaluate("waits.map((each) => each.milliseconds)"))
    # The last of the board's panels has its turn when those before it had all their time.
    panels = len(BOARDS[0].panels)
    assert shortest >= PANEL_SECONDS * 1000 * panels / AT_ONCE
    expect(tab.page.locator("#fleet-replicas td").first).to_be_visible()
    banner = tab.page.locator("#banner")
    assert banner.is_hidden()
    tab.page.evaluate("waits.forEach((each) => each.end())")
    expect(banner).to_have_text(f"the page's server did not answer within {shortest // 1000} s")


@pytest.mark.night
def test_a_panel_that_is_late_says_so_itself_and_no_other_does(served: Served, visit: Open) -> None:
    tab = visit(served.origin, quiet=False)
    tab.open(f"board=fleet&{RANGE}")
    told = "This panel took longer than 20 s: the store is busy."
    busy = {"problem": told, "busy": True}
    late = "**/api/panels/fleet-answer?*"
    tab.page.route(late, lambda route: route.fulfill(status=503, json=busy))
    tab.again()
    panel = tab.page.locator("#fleet-answer")
    # Its figures stay, with the reason above them; nothing stands above the board.
    expect(panel.locator(".late")).to_have_text(f"{told} Trying again.")
    assert panel.locator(".stale .card").count() > 0
    assert tab.page.locator("#banner").is_hidden()
    assert tab.page.locator(".late, .note.problem").count() == 1
    tab.page.goto(f"{tab.origin}/?board=fleet&{RANGE}")
    expect(panel.locator(".note")).to_have_text(f"{told} Trying again.")
    assert "error above" not in (tab.page.locator("#board").text_content() or "")
    tab.page.unroute(late)
    expect(panel.locator(".card").first).to_be_visible(timeout=60_000)
    assert tab.page.locator(".late, .note.problem").count() == 0


@pytest.mark.night
def test_what_concerns_all_panels_stands_above_as_soon_as_one_of_them_refers_to_it(
    served: Served, visit: Open
) -> None:
    tab = visit(served.origin, quiet=False)
    problem = "ClickHouse at http://x cannot be used: no connection"
    tab.page.route(
        "**/api/panels/fleet-costs?*", lambda route: route.fulfill(status=503, json={"problem": problem})
    )
    tab.page.route("**/api/panels/fleet-fills?*", lambda _route: None)
    tab.page.goto(f"{tab.origin}/?board=fleet&{RANGE}")
    expect(tab.page.locator("#fleet-costs .note")).to_contain_text("See the error above.")
    expect(tab.page.locator("#banner")).to_have_text(problem)


@pytest.mark.night
def test_a_section_that_has_nothing_is_one_line(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    early = START - 40 * 86400
    tab.open(f"board=replica&from={early}&to={early + 3600}&refresh=0")
    every = tab.page.locator(".grid.folded")
    folded = every.filter(has_text="LMCache")
    assert folded.count() == 1
    assert (folded.text_content() or "").count("No LMCache server reports to a connector here") == 3
    expect(folded.locator(".panel").first).to_be_hidden()
    assert folded.locator(":scope > .note").count() == 1
    assert all((one.bounding_box() or {})["height"] < 30 for one in every.all())
    tab.open(f"board=replica&{RANGE}")
    assert folded.count() == 0


@pytest.mark.night
def test_an_axis_on_a_phone_names_more_than_one_time(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.page.set_viewport_size({"width": 390, "height": 900})
    for seconds in (300, 900, 3600):
        tab.open(f"board=fleet&from={START}&to={START + seconds - 1}&refresh=0")
        assert int(tab.page.locator("#fleet-fills .plot").get_attribute("data-times") or 0) > 1, seconds


@pytest.mark.night
def test_names_are_found_and_copied_in_one_piece(served: Served, visit: Open) -> None:
    name = "inference-cluster-europe-west4/deployment-of-a-large-model/replica-007"
    start = START - 5 * 86400
    rows = [
        msgspec.structs.replace(row, model="long", replica=name, window=row.window - 5 * DAY)
        for window in range(6)
        for row in window_rows(window, "a")
    ]
    write_rows(served.settings, rows)
    tab = visit(served.origin)
    copied = """(element) => {
        const range = document.createRange();
        range.selectNode(element);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        return getSelection().toString();
    }"""
    for board, place in (("fleet", "#fleet-replicas tbody tr"), ("model", "#model-fullness .legend .name")):
        tab.open(f"board={board}&from={start}&to={start + 59}&refresh=0&model=long")
        shown = tab.page.locator(f"{place}").first
        cut = tab.page.locator(f"{place} .name.cut, {place}.name.cut").first
        # Shortened for the eye, with its end to be seen.
        expect(cut).to_have_count(1)
        after = cut.evaluate("(each) => getComputedStyle(each, '::after').content")
        assert after == f'"\N{HORIZONTAL ELLIPSIS}{name[-14:]}"'
        assert tab.page.evaluate(f"(getSelection().removeAllRanges(), window.find('{name}'))")
        assert name in shown.evaluate(copied).replace("\t", " ").split()


@pytest.fixture
def own_store(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[EmbeddedStore]:
    store = EmbeddedStore(tmp_path / "store", free_port())
    store.start()
    yield store
    store.kill()


@pytest.mark.night
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
        banner.wait_for(state="visible", timeout=60_000)
        told = banner.text_content() or ""
        # Once, without the address that the driver asked.
        assert re.fullmatch(
            r"ClickHouse at http://127\.0\.0\.1:\d+ cannot be used: [^?&]+; check .* it runs", told
        )
        assert banner.evaluate("(box) => box.scrollWidth <= box.clientWidth")
        # The old figures stay, dimmed.
        assert tab.page.locator("#fleet-gpu-full .stale .figure").text_content() == "50 %"
        own_store.start()
        banner.wait_for(state="hidden", timeout=60_000)
        assert tab.page.locator(".stale").count() == 0
    finally:
        server.stop()
