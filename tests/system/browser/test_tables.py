"""Tables of names: each leads to its board, all replicas are there, searched and sorted."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.support.inputs import crowd
from tests.support.inputs.board_rows import HOUR
from tests.system.browser.tabs import Open, Served

pytestmark = pytest.mark.night

START = int(HOUR.timestamp())
RANGE = f"from={START}&to={START + 3599}&refresh=0"


def test_names_lead_to_their_boards_with_range_and_filters_kept(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open(f"board=fleet&{RANGE}&model=m")
    row = tab.page.locator("#fleet-replicas tbody tr").nth(1)
    row.get_by_role("link", name="b").click()
    tab.settled()
    expect(tab.page).to_have_url(f"{tab.origin}/?board=replica&{RANGE}&model=m&replica=b")
    expect(tab.page.locator("#replica-occupancy .sr")).to_have_text(
        "Cached tokens by medium, newest: cpu 160, gpu 640"
    )
    tab.page.go_back()
    tab.settled()
    tab.page.locator("#fleet-hot-prefixes tbody").get_by_role("link", name="m").click()
    tab.settled()
    expect(tab.page).to_have_url(f"{tab.origin}/?board=model&{RANGE}&model=m")
    # In charts: a bar, a series, a lane.
    expect(tab.page.locator("#model-replicas .bars a")).to_have_count(2)
    tab.page.locator("#model-fullness .legend .go").nth(1).click()
    expect(tab.page).to_have_url(f"{tab.origin}/?board=replica&{RANGE}&model=m&replica=b")
    tab.open(f"board=health&{RANGE}")
    tab.page.locator("#health-timeline .rows a").click()
    expect(tab.page).to_have_url(f"{tab.origin}/?board=replica&{RANGE}&replica=b")


def test_all_replicas_are_listed_searched_and_sorted(crowded: Served, visit: Open) -> None:
    tab = visit(crowded.origin)
    tab.open(f"board=fleet&{crowd.RANGE}")
    table = tab.page.locator("#fleet-replicas")
    names = table.locator("tbody tr td:nth-child(2)")
    expect(names).to_have_count(crowd.REPLICAS)
    search = table.get_by_role("searchbox")
    search.fill("model-03 replica-0")
    expected = [crowd.name(number) for number in range(3, crowd.REPLICAS, crowd.MODELS)]
    expect(names).to_have_text(expected)
    assert table.locator(".extent").text_content() == f"{len(expected)} of {crowd.REPLICAS} rows match. "
    head = table.get_by_role("button", name="replica", exact=True)
    head.click()
    expect(names).to_have_text(expected)
    assert table.locator("th[aria-sort]").get_attribute("aria-sort") == "ascending"
    head.click()
    expect(names).to_have_text(expected[::-1])
    # What was typed and chosen is still so after new figures came.
    tab.again()
    expect(names).to_have_text(expected[::-1])
    assert search.input_value() == "model-03 replica-0"
    search.fill("nobody")
    expect(names).to_have_count(0)
    assert table.locator(".extent").text_content() == f"0 of {crowd.REPLICAS} rows match. "


def test_a_long_table_shows_a_hundred_rows_and_more_on_demand(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open(f"board=fleet&{RANGE}")
    answer = {
        "names": ["replica", "filled"],
        "columns": [[f"r{number}" for number in range(250)], [None, *range(249)]],
        "times": [],
        "step": 10,
    }
    tab.page.route("**/api/panels/fleet-replicas?*", lambda route: route.fulfill(json=answer))
    tab.again()
    table = tab.page.locator("#fleet-replicas")
    rows = table.locator("tbody tr")
    expect(rows).to_have_count(100)
    assert table.locator(".extent").text_content() == "First 100; 250 rows. Show 100 more"
    table.get_by_role("button", name="Show 100 more").click()
    expect(rows).to_have_count(200)
    table.get_by_role("button", name="Show 50 more").click()
    expect(rows).to_have_count(250)
    table.get_by_role("button", name="filled").click()
    assert rows.first.locator("td").all_text_contents() == ["r249", "248"]
    assert rows.last.locator("td").all_text_contents() == ["r0", "\N{EN DASH}"]
    table.get_by_role("button", name="filled").click()
    assert rows.first.locator("td").all_text_contents() == ["r1", "0"]
    assert rows.last.locator("td").all_text_contents() == ["r0", "\N{EN DASH}"]


def test_words_that_still_count_can_be_taken_back(served: Served, visit: Open) -> None:
    """Where a table has fewer rows than before, and names that the language of the page knows, too."""
    tab = visit(served.origin)
    tab.open(f"board=fleet&{RANGE}")
    answer = {
        "names": ["replica", "filled"],
        "columns": [["constructor", *(f"r{number}" for number in range(12))], [*range(13)]],
        "times": [],
        "step": 10,
    }
    tab.page.route("**/api/panels/fleet-replicas?*", lambda route: route.fulfill(json=answer))
    tab.again()
    table = tab.page.locator("#fleet-replicas")
    rows = table.locator("tbody tr")
    expect(rows).to_have_count(13)
    table.get_by_role("searchbox").fill("r1")
    expect(rows).to_have_count(3)
    answer["columns"] = [["constructor", "b"], [1, 2]]
    tab.page.click("nav a[href*='board=model']")
    tab.settled()
    tab.page.go_back()
    expect(rows).to_have_count(0)
    table.get_by_role("searchbox").fill("")
    expect(rows).to_have_count(2)


def test_what_all_rows_have_in_common_is_said_once(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open(f"board=fleet&{RANGE}")
    table = tab.page.locator("#fleet-hot-prefixes")
    answer = {
        "names": ["model", "trust"],
        "columns": [["m", "m"], ["degraded", "degraded"]],
        "times": [],
        "step": 10,
    }
    tab.page.route("**/api/panels/fleet-hot-prefixes?*", lambda route: route.fulfill(json=answer))
    tab.again()
    assert table.locator(".extent").text_content() == (
        "Each of these figures rests on all streams that can hold it, and one or more of them is degraded: "
        "see Pipeline health"
    )
    assert table.locator("th").all_text_contents() == ["model"]
    assert table.locator("td.red").count() == 0
    table.get_by_role("link", name="see Pipeline health").click()
    expect(tab.page).to_have_url(f"{tab.origin}/?board=health&{RANGE}")


def test_a_hot_prefix_shows_its_name_and_its_share_of_all_refills(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open(f"board=fleet&{RANGE}")
    heads = tab.page.locator("#fleet-hot-prefixes th").all_text_contents()
    cells = tab.page.locator("#fleet-hot-prefixes tbody td").all_text_contents()
    row = dict(zip(heads, cells, strict=True))
    assert (row["first block"], row["name"], row["% of refills"]) == (f"{0xABC:016x}", "support bot", "17.8")


def test_the_doctors_findings_stand_above_pipeline_health(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open(f"board=health&{RANGE}")
    findings = tab.page.locator(".doctor")
    expect(findings).to_have_attribute("data-verdict", "problems", timeout=60_000)
    hashes = findings.locator(".finding", has_text="hashes-not-comparable")
    assert "share no first block with any other replica" in (hashes.text_content() or "")
    assert "PYTHONHASHSEED" in (hashes.locator(".do").text_content() or "")
    # There is no broker here.
    assert findings.locator(".finding", has_text="kafka-unavailable").count() == 1
    hashes.get_by_role("link", name="b/0").click()
    expect(tab.page).to_have_url(re.compile("board=replica.*replica=b$"))
    expect(findings).to_have_count(0)


def test_an_error_in_the_form_of_another_server_is_told_by_its_status(served: Served, visit: Open) -> None:
    """A proxy before the page answers with a page of its own."""
    tab = visit(served.origin)
    tab.page.route("**/api/findings*", lambda route: route.fulfill(status=502, body="<h1>Bad Gateway</h1>"))
    tab.open(f"board=health&{RANGE}")
    told = tab.page.locator(".doctor .note.problem")
    expect(told).to_have_text(re.compile(r"^The findings could not be read: 502"))
    # The browser tells it in its console as well.
    assert all("502" in problem for problem in tab.problems)
    tab.problems.clear()
