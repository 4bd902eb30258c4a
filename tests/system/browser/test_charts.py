"""Charts of many: colours, scales, marks, curves; one series alone; files, SQL, full screen."""

from __future__ import annotations

import csv
import io
import re
from itertools import combinations

import clickhouse_connect
import pytest
from playwright.sync_api import expect

from pipeline.dashboards.queries import TOP
from tests.support.inputs import crowd
from tests.support.inputs.board_rows import HOUR
from tests.system.browser.tabs import Open, Served, Visit

pytestmark = pytest.mark.night

START = int(HOUR.timestamp())
RANGE = f"from={START}&to={START + 3599}&refresh=0"
APART = 20
"""Least distance of two colours, in steps of one of the channels' 255."""


def colours(tab: Visit, panel: str) -> list[tuple[int, ...]]:
    found = tab.page.locator(f"#{panel} .legend i").evaluate_all(
        "(dots) => dots.map((dot) => getComputedStyle(dot).backgroundColor)"
    )
    return [tuple(map(int, re.findall(r"\d+", text)[:3])) for text in found]


def test_no_two_of_twelve_models_nor_of_twenty_replicas_have_the_same_colour(
    crowded: Served, visit: Open
) -> None:
    tab = visit(crowded.origin)
    for board, panel, count in (
        ("fleet", "fleet-eviction", crowd.MODELS),
        ("model", "model-fullness", TOP + 1),
    ):
        tab.open(f"board={board}&{crowd.RANGE}")
        found = colours(tab, panel)
        assert len(found) == count
        for one, other in combinations(found, 2):
            assert sum(abs(a - b) for a, b in zip(one, other, strict=True)) >= APART


def test_others_set_no_scale(crowded: Served, visit: Open) -> None:
    tab = visit(crowded.origin)
    tab.open(f"board=model&{crowd.RANGE}")
    bars = tab.page.locator("#model-replicas .bar")
    widths = [
        bar.evaluate(
            "(bar) => [...bar.children].reduce((sum, part) => sum + parseFloat(part.style.width), 0)"
        )
        for bar in bars.all()
    ]
    assert len(widths) == TOP + 1
    assert all(round(width) == 100 for width in widths)
    assert tab.page.locator("#model-replicas .bar.beyond").count() == 1
    amount = tab.page.locator('#model-replicas [data-figure="others"]')
    assert amount.text_content() == "264 kabove the scale"
    assert float(amount.get_attribute("data-value") or 0) == (crowd.REPLICAS - TOP) * 100 * 60


def test_others_set_no_scale_of_a_chart(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open(f"board=fleet&{RANGE}")
    largest = "import('./static/panels/series.js').then((series) => series.largest(%s, %s))"
    assert tab.page.evaluate(largest % ('["a", "others"]', "[[1, 4], [90, 80]]")) == 4
    assert tab.page.evaluate(largest % ('["others"]', "[[90, null]]")) == 90


def test_many_restarts_are_marked_in_bundles_and_few_by_name(crowded: Served, visit: Open) -> None:
    tab = visit(crowded.origin)
    tab.open(f"board=fleet&{crowd.RANGE}")
    plot = tab.page.locator("#fleet-eviction .plot")
    assert int(plot.get_attribute("data-marks") or 0) == 5
    told = tab.page.locator("#fleet-eviction .marked").text_content() or ""
    assert [int(number) for number in re.findall(r"(\d+) events", told)] == [6, 6, 6, 6]
    assert told.endswith("replica-000 restarted")
    tab.open(f"board=fleet&from={crowd.START}&to={crowd.START + 39}&refresh=0")
    assert int(plot.get_attribute("data-marks") or 0) == 4
    told = tab.page.locator("#fleet-eviction .marked").text_content() or ""
    assert told.count("replica-000 restarted") == 4


def test_marks_are_numbered_on_the_charts_and_listed_once(crowded: Served, visit: Open) -> None:
    tab = visit(crowded.origin)
    tab.open(f"board=fleet&from={crowd.START}&to={crowd.START + 39}&refresh=0")
    listed = tab.page.locator("#marks")
    assert listed.locator("b").all_text_contents() == ["1 ", "2 ", "3 ", "4 "]
    assert (listed.text_content() or "").count("replica-000 restarted") == 4
    assert "/" not in (listed.text_content() or "")
    tab.open(f"board=fleet&from={crowd.END - 60}&to={crowd.END}&refresh=0")
    assert (listed.text_content() or "") == ""


def test_a_mark_that_is_pointed_at_says_what_happened(crowded: Served, visit: Open) -> None:
    tab = visit(crowded.origin)
    happened = tab.page.locator("#fleet-eviction .tip .mark")

    def point_at(seconds: float, of: float) -> None:
        chart = tab.page.locator("#fleet-eviction .u-over")
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        assert box is not None
        tab.page.mouse.move(box["x"] + box["width"] * seconds / of, box["y"] + box["height"] / 2)

    # Each mark by itself, and nothing between two of them.
    tab.open(f"board=fleet&from={crowd.START}&to={crowd.START + 39}&refresh=0")
    point_at(20, 39)
    expect(happened).to_have_text(["replica-000 restarted"])
    point_at(25, 39)
    expect(happened).to_have_count(0)
    # Of a bundle of six the first four, and how many more there are.
    tab.open(f"board=fleet&{crowd.RANGE}")
    point_at(30, crowd.SECONDS - 1)
    expect(happened).to_have_text(["replica-000 restarted"] * 4 + ["and 2 more"])
    point_at(500, crowd.SECONDS - 1)
    expect(tab.page.locator("#fleet-eviction .tip")).to_be_visible()
    expect(happened).to_have_count(0)


def test_lanes_and_cells_are_as_wide_as_the_windows_of_their_rows(crowded: Served, visit: Open) -> None:
    """Rows of minutes at a step of twenty seconds would leave two of three points empty."""
    tab = visit(crowded.origin)
    over = f"from={crowd.START - 5 * 3600}&to={crowd.END}"
    tab.open(f"board=health&{over}&refresh=0")
    answer = tab.page.evaluate(f"fetch('api/panels/health-timeline?{over}').then((it) => it.json())")
    assert answer["step"] == 120
    points = "import('./static/panels/series.js').then((series) => { const it = series.points(%d, %d, %d);"
    points += " return [it.first, it.count, it.of(%d)]; })"
    assert tab.page.evaluate(points % (130, 599, 60, 120)) == [120, 8, 0]
    assert tab.page.evaluate(points % (130, 599, 60, 540)) == [120, 8, 7]


def test_a_click_shows_one_series_alone(crowded: Served, visit: Open) -> None:
    tab = visit(crowded.origin)
    tab.open(f"board=fleet&{crowd.RANGE}")
    panel = tab.page.locator("#fleet-eviction")
    item = panel.locator(".legend .item", has_text="model-04")
    whole = float(panel.locator(".plot").get_attribute("data-top") or 0)
    item.click()
    assert panel.locator(".legend .item.off").count() == crowd.MODELS - 1
    assert item.get_attribute("aria-pressed") == "true"
    one = float(panel.locator(".plot").get_attribute("data-top") or 0)
    assert one < whole
    tab.again()
    assert panel.locator(".legend .item.off").count() == crowd.MODELS - 1
    panel.locator(".legend .item", has_text="model-05").click(modifiers=["Control"])
    assert panel.locator(".legend .item.off").count() == crowd.MODELS - 2
    panel.locator(".legend .item", has_text="model-05").click(modifiers=["Control"])
    item.click()
    assert panel.locator(".legend .item.off").count() == 0


def test_the_gain_of_more_cache_is_a_curve_with_its_knee_in_bytes(crowded: Served, visit: Open) -> None:
    tab = visit(crowded.origin)
    tab.open(f"board=model&{crowd.RANGE}&model=model-04")
    panel = tab.page.locator("#model-capacity-gain")
    assert panel.locator("canvas").count() == 1
    assert tab.value("model-capacity-gain", "model-04: knee") == 0.2
    assert panel.locator(".knees").text_content() == (
        "model-04: +16 tokens (2.1 MB) a replica saves ≥ 20 % of the prefill; any size saves at most 20 %"
    )


def test_a_panel_is_a_file_and_a_statement(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open(f"board=fleet&{RANGE}")
    panel = tab.page.locator("#fleet-replicas")
    panel.locator(".more").click()
    with tab.page.expect_download() as download:
        panel.get_by_role("link", name="Download CSV").click()
    assert download.value.suggested_filename == "fleet-replicas.csv"
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert [(row["replica"], row["prefill"], row["trust"]) for row in rows] == [
        ("a", "36000", "complete"),
        ("b", "36000", "degraded"),
    ]
    panel.locator(".more").click()
    panel.get_by_role("button", name="Show SQL").click()
    code = tab.page.locator("dialog.sql pre")
    expect(code).to_contain_text("ORDER BY avoidable DESC")
    store = served.settings.clickhouse
    client = clickhouse_connect.get_client(dsn=store.url, database=store.database)
    sql = code.text_content() or ""
    assert "{" not in sql
    assert [row[1:3] for row in client.query(sql).result_rows] == [("a", 36000), ("b", 36000)]
    client.close()
    tab.page.get_by_role("button", name="Close").click()
    expect(code).to_have_count(0)


def test_a_panel_fills_the_screen_until_escape(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open(f"board=fleet&{RANGE}")
    panel = tab.page.locator("#fleet-occupancy")
    panel.locator(".more").click()
    panel.get_by_role("button", name="Full screen").click()
    expect(tab.page).to_have_url(re.compile("full=fleet-occupancy"))
    # Figures are asked again, and a chart that is drawn anew is a new element.
    tab.settled()
    size = tab.page.viewport_size
    assert size is not None
    assert panel.bounding_box() == {"x": 0, "y": 0, **size}
    expect(panel.locator("canvas").first).to_have_js_property("clientWidth", size["width"] - 26)
    tall = panel.locator("canvas").first.bounding_box()
    assert tall is not None
    assert tall["height"] > size["height"] / 2
    tab.page.reload()
    tab.settled()
    assert panel.bounding_box() == {"x": 0, "y": 0, **size}
    tab.page.keyboard.press("Escape")
    expect(tab.page).not_to_have_url(re.compile("full="))
    tab.settled()
    small = panel.bounding_box()
    assert small is not None
    assert small["width"] < size["width"] / 2 + 1


def test_labels_of_a_heatmap_stand_beside_their_rows(served: Served, visit: Open) -> None:
    tab = visit(served.origin)
    tab.open(f"board=model&{RANGE}")
    title = tab.page.locator("#model-lifetimes h3").bounding_box()
    assert title is not None
    tops = [label.bounding_box() for label in tab.page.locator("#model-lifetimes .level").all()]
    assert len(tops) == 2
    assert all(box is not None and box["y"] > title["y"] + title["height"] for box in tops)
