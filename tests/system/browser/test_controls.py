"""What to show: names found by a part of them, several at once; ranges in words; zone; theme; phones."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import expect

from tests.support.inputs import crowd
from tests.support.inputs.board_rows import HOUR
from tests.system.browser.tabs import Open, Served, Visit

pytestmark = pytest.mark.night

START = int(HOUR.timestamp())
RANGE = f"from={START}&to={START + 3599}&refresh=0"


def test_typing_a_part_of_a_name_finds_all_that_contain_it(crowded: Served, visit: Open) -> None:
    tab = visit(crowded.origin)
    tab.open(f"board=model&{crowd.RANGE}")
    options = tab.page.locator("#replica-list [role=option]")
    tab.page.locator("#replica").focus()
    expect(options).to_have_count(crowd.REPLICAS)
    tab.page.keyboard.type("CA-00")
    expect(options).to_have_text([crowd.name(number) for number in range(10)])
    tab.page.keyboard.press("Enter")
    expect(tab.page).to_have_url(re.compile("replica-000&replica=replica-001"))
    tab.settled()
    assert tab.page.input_value("#replica") == "replica-000 and 9 more"
    bars = tab.page.locator("#model-replicas .bars > .name")
    expect(bars).to_have_text([crowd.name(number) for number in range(10)])


def test_several_names_are_chosen_one_after_the_other_and_given_up(crowded: Served, visit: Open) -> None:
    tab = visit(crowded.origin)
    tab.open(f"board=model&{crowd.RANGE}")
    box = tab.page.locator("#replica")
    box.focus()
    for text in ("063", "017"):
        box.fill(text)
        tab.page.locator("#replica-list [role=option]").click()
    expect(tab.page).to_have_url(re.compile("replica=replica-063&replica=replica-017$"))
    box.fill("")
    chosen = tab.page.locator("#replica-list [role=option][aria-selected=true]")
    expect(chosen).to_have_text(["replica-017", "replica-063"])
    tab.page.keyboard.press("ArrowDown")
    tab.page.keyboard.press("Enter")
    expect(tab.page).to_have_url(re.compile("refresh=0&replica=replica-063$"))
    tab.page.get_by_role("button", name="All replicas").click()
    expect(tab.page).to_have_url(re.compile("refresh=0$"))
    box.fill("nobody")
    expect(tab.page.locator("#replica-list")).to_have_text("No replica contains this.")


def test_several_models_may_be_chosen(crowded: Served, visit: Open) -> None:
    tab = visit(crowded.origin)
    tab.open(f"board=fleet&{crowd.RANGE}")
    tab.page.fill("#model", "model-03, model-07")
    tab.page.press("#model", "Enter")
    expect(tab.page).to_have_url(re.compile("model=model-03&model=model-07"))
    names = tab.page.locator("#fleet-eviction .legend .name")
    expect(names).to_have_text(["model-03", "model-07"])


def test_a_range_is_said_in_words_and_taken_from_a_clock(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open(f"board=replica&{RANGE}")
    shown = tab.page.locator("#range option:checked")
    assert shown.text_content() == f"{HOUR:%b %-d, %H:%M} to {HOUR:%H}:59"
    tab.page.click("#span")
    assert tab.page.input_value("#from") == f"{HOUR:%Y-%m-%dT%H:%M}"
    tab.page.fill("#to", f"{HOUR:%Y-%m-%dT%H}:20:00")
    tab.page.click("#absolute button")
    expect(tab.page).to_have_url(re.compile(f"from={START}&to={START + 1200}"))
    assert shown.text_content() == f"{HOUR:%b %-d, %H:%M} to {HOUR:%H}:20"
    tab.page.click("#span")
    tab.page.fill("#from", f"{HOUR:%Y-%m-%dT%H}:30:00")
    tab.page.click("#absolute button")
    assert tab.page.locator("#range-problem").text_content() == "“From” must be before “To”."
    tab.page.keyboard.press("Escape")
    tab.page.select_option("#range", "900")
    expect(shown).to_have_text("Last 15 minutes")


def test_times_are_the_viewers_own_or_utc(served: Served, visit: Open) -> None:
    tab = visit(served.origin, zone="Europe/Berlin")
    tab.open(f"board=replica&{RANGE}")
    local = HOUR.astimezone(ZoneInfo("Europe/Berlin"))
    opened = tab.page.locator("#replica-lives tbody tr").first.locator("td").nth(2)
    assert "Times in Europe/Berlin." in (tab.page.locator("#hint").text_content() or "")
    assert opened.text_content() == f"{local:%b %-d, %H:%M:%S}"
    tab.page.click("#display")
    tab.page.select_option("#zone", "utc")
    expect(tab.page).to_have_url(re.compile("zone=utc"))
    expect(opened).to_have_text(f"{HOUR:%b %-d, %H:%M:%S}")
    assert "Times in UTC." in (tab.page.locator("#hint").text_content() or "")
    tab.page.reload()
    tab.settled()
    assert opened.text_content() == f"{HOUR:%b %-d, %H:%M:%S}"
    words = tab.page.locator("#range option:checked").text_content()
    assert words == f"{HOUR:%b %-d, %H:%M} to {HOUR:%H}:59"
    moved = tab.page.evaluate(
        "import('./static/time.js').then((time) => time.fromInput('2026-01-02T03:04:05'))"
    )
    assert moved == datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc).timestamp()


def test_a_moment_in_the_hour_that_clocks_show_twice_stays_as_it_was(served: Served, visit: Open) -> None:
    second = int(datetime(2026, 10, 25, 1, 30, tzinfo=timezone.utc).timestamp())
    tab = visit(served.origin, zone="Europe/Berlin")
    tab.open(f"board=replica&from={second}&to={second + 7200}&refresh=0")
    tab.page.click("#span")
    tab.page.fill("#to", "2026-10-25T05:00:00")
    tab.page.click("#absolute button")
    expect(tab.page).to_have_url(re.compile(f"from={second}&to={second + 9000}&refresh=0$"))


def test_an_address_written_by_hand_can_be_answered(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open("board=replica&from=5&refresh=9999999999")
    read = tab.page.evaluate("import('./static/state.js').then((state) => state.read(location.search))")
    assert [read[name] for name in ("from", "to", "refresh")] == [None, None, 86400]


def test_a_way_back_to_other_models_offers_their_replicas(crowded: Served, visit: Open) -> None:
    tab = visit(crowded.origin)
    tab.open(f"board=model&{crowd.RANGE}")
    tab.page.fill("#model", "model-03")
    tab.page.press("#model", "Enter")
    tab.page.locator("#replica").focus()
    options = tab.page.locator("#replica-list [role=option]")
    expect(options).to_have_count(len(range(3, crowd.REPLICAS, crowd.MODELS)))
    tab.page.locator("#now").focus()
    tab.page.go_back()
    tab.page.locator("#replica").focus()
    # Sooner than names are looked up again anyway.
    expect(options).to_have_count(crowd.REPLICAS, timeout=20_000)


def test_a_theme_is_chosen_and_kept(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open(f"board=fleet&{RANGE}")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = tab.page.evaluate(ground)
    tab.page.click("#display")
    tab.page.select_option("#theme", "dark")
    dark = tab.page.evaluate(ground)
    assert dark != light
    tab.page.reload()
    tab.settled()
    assert tab.page.evaluate(ground) == dark
    tab.page.click("#display")
    tab.page.select_option("#theme", "")
    assert tab.page.evaluate(ground) == light


def dragged_over(tab: Visit, panel: str, since: float, until: float) -> None:
    """Drag across a part of a chart's width."""
    chart = tab.page.locator(f"#{panel} .u-over").bounding_box()
    assert chart is not None
    tab.page.mouse.move(chart["x"] + chart["width"] * since, chart["y"] + 40)
    tab.page.mouse.down()
    tab.page.mouse.move(chart["x"] + chart["width"] * until, chart["y"] + 40)
    tab.page.mouse.up()


def test_a_zoom_shows_that_its_figures_are_on_their_way(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open(f"board=replica&{RANGE}")
    tab.page.route("**/api/panels/replica-flow?*", lambda route: None)
    dragged_over(tab, "replica-occupancy", 1 / 4, 1 / 2)
    expect(tab.page.locator("#replica-occupancy .body.loading")).to_have_count(0)
    expect(tab.page.locator("#replica-flow .body.loading")).to_have_count(1)
    zoomed = re.search(r"from=(\d+)&to=(\d+)", tab.page.url)
    assert zoomed
    assert [int(each) - START for each in zoomed.groups()] == [
        pytest.approx(900, abs=20),
        pytest.approx(1800, abs=20),
    ]
    tab.page.unroute_all(behavior="ignoreErrors")


def test_a_double_click_gives_up_every_zoom(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open("board=replica&range=21600&refresh=0")
    whole = tab.page.locator("#range option:checked")
    expect(whole).to_have_text("Last 6 hours")
    seconds = []
    # The hour of rows begins two to three hours ago.
    for since, until in ((0.4, 0.9), (0.2, 0.9)):
        dragged_over(tab, "replica-occupancy", since, until)
        expect(tab.page).to_have_url(re.compile(r"from=\d+&to=\d+&refresh=0$"))
        tab.settled()
        zoomed = re.search(r"from=(\d+)&to=(\d+)", tab.page.url)
        assert zoomed
        seconds.append(int(zoomed[2]) - int(zoomed[1]))
    assert seconds == [pytest.approx(10_800, rel=0.05), pytest.approx(7_560, rel=0.05)]
    tab.page.locator("#replica-occupancy .u-over").dblclick()
    expect(tab.page).to_have_url(re.compile(r"\?board=replica&range=21600&refresh=0$"))
    expect(whole).to_have_text("Last 6 hours")


def test_an_opened_meaning_moves_nothing_at_the_width_of_a_desk(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.page.set_viewport_size({"width": 1280, "height": 900})
    tab.open(f"board=model&{RANGE}")
    panels = tab.page.locator(".panel")
    places = "(panels) => panels.map((panel) => JSON.stringify(panel.getBoundingClientRect()))"
    for number in range(panels.count()):
        panel = panels.nth(number)
        panel.scroll_into_view_if_needed()
        button, told = panel.locator("summary"), panel.locator("details p")
        before, around = button.bounding_box(), panels.evaluate_all(places)
        button.click()
        expect(told).to_be_visible()
        assert button.bounding_box() == before
        assert panels.evaluate_all(places) == around
        shown = told.bounding_box()
        assert shown is not None
        assert 0 <= shown["x"] <= shown["x"] + shown["width"] <= 1280
        button.click()
        expect(told).to_be_hidden()


def test_the_head_takes_two_lines_on_a_phone(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    for width in (360, 412):
        tab.page.set_viewport_size({"width": width, "height": 800})
        tab.open(f"board=model&{RANGE}")
        head = tab.page.locator("header").bounding_box()
        assert head is not None
        assert head["height"] <= 90
        lines = tab.page.evaluate(
            "[...document.querySelectorAll('#boards a, #controls :is(input, select, button)')]"
            ".filter((each) => each.offsetParent && !each.closest('[popover]'))"
            ".map((each) => each.getBoundingClientRect()).map((box) => box.top + box.height / 2)"
        )
        assert len({round(middle / 12) for middle in lines}) == 2
        meaning = tab.page.locator("#model-fills summary")
        before = meaning.bounding_box()
        meaning.click()
        assert meaning.bounding_box() == before
        told = tab.page.locator("#model-fills details p").bounding_box()
        assert told is not None
        assert 0 <= told["x"] <= told["x"] + told["width"] <= width
        tab.shot(f"model-phone-{width}")
