"""What a finding rests on is one click away: the board, range, model and replica that it is about."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import replace
from playwright.sync_api import expect

from pipeline.advice.reading import read_advice
from pipeline.advice.text import link
from pipeline.clickhouse.client import connect
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.fleet_rows import CapacityCurveRow, FillsRow
from schemas.rows import Row, SourceRow
from tests.support.inputs.board_rows import HOUR, migrated, window_rows, write_rows
from tests.system.browser.tabs import Open, Served, serve

pytestmark = pytest.mark.night

START = int(HOUR.timestamp())
END = START + 59
MODEL = "uneven"
LEADS = ("board", "from", "to", "model", "replica")


def rows() -> list[Row]:
    """Return a minute of two replicas, of which the one named `full` evicts what it wants again."""
    found: list[Row] = [
        SourceRow(
            *(MODEL, name, 0, 7, HOUR, None, "", "vllm", "map", MODEL, "default", "", 0, 60, []),
            *("complete", HOUR, 1),
        )
        for name in ("full", "roomy")
    ]
    for name in ("full", "roomy"):
        for row in (row for window in range(6) for row in window_rows(window, name)):
            moved = replace(row, model=MODEL)
            if isinstance(moved, FillsRow | CapacityCurveRow):
                moved = replace(moved, hash_domain=MODEL)
            if isinstance(moved, FillsRow) and name == "roomy":
                moved = replace(moved, evicted_tokens=0, cold_tokens=moved.cold_tokens + moved.evicted_tokens)
            if isinstance(moved, CapacityCurveRow) and name == "roomy":
                moved = replace(moved, needed_hist=[])
            found.append(moved)
    return found


@pytest.fixture(scope="module")
def uneven(
    store: EmbeddedStore, free_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    settings = migrated(store)
    write_rows(settings, rows())
    server = serve(settings, free_port(), tmp_path_factory.mktemp("uneven"))
    yield server
    server.stop()


def led_to(address: str) -> dict[str, list[str]]:
    fields = parse_qs(urlsplit(address).query)
    return {name: fields[name] for name in LEADS if name in fields}


def test_a_finding_leads_to_the_board_range_and_replica_that_show_it(uneven: Served, visit: Open) -> None:
    client = connect(uneven.settings.clickhouse)
    advice = read_advice(client, uneven.settings.clickhouse.database, START, END)
    client.close()
    [own] = [finding for finding in advice.findings if finding.kind == "capacity"]
    assert (own.board, own.model, own.replicas) == ("replica", MODEL, ["full"])

    tab = visit(uneven.origin)
    tab.open(f"board=fleet&from={START}&to={END}&refresh=0")
    links = tab.page.locator("#fleet-findings li a")
    assert links.all_text_contents() == [finding.finding for finding in advice.findings]
    shown: list[Any] = [each.get_attribute("href") for each in links.all()]
    # Those of the terminal lead to the same place.
    assert [led_to(each) for each in shown] == [led_to(link(advice, finding)) for finding in advice.findings]

    links.nth(advice.findings.index(own)).click()
    expect(tab.page.locator("nav [aria-current=page]")).to_have_text("Replica")
    wanted = {"board": "replica", "from": str(START), "to": str(END), "model": MODEL, "replica": "full"}
    assert led_to(tab.page.url) == {name: [value] for name, value in wanted.items()}
    expect(tab.page.locator("#replica")).to_have_value("full")
    one = "Cached tokens by medium, newest: cpu 160, gpu 640"
    occupancy = tab.page.locator("#replica-occupancy .sr")
    expect(occupancy).to_have_text(one)
    tab.open(link(advice, own).removeprefix("?"))
    assert occupancy.text_content() == one


def test_the_first_card_has_the_course_of_its_share(uneven: Served, visit: Open) -> None:
    # Ten seconds in which nothing is avoidable, after the minute.
    later = [
        replace(row, window=row.window + timedelta(minutes=1)) for row in rows() if isinstance(row, FillsRow)
    ]
    first = min(row.window for row in later)
    quiet = [
        replace(
            row,
            evicted_tokens=0,
            evicted_elsewhere_tokens=0,
            peer_tokens=0,
            peer_and_evicted_tokens=0,
            cleared_tokens=0,
        )
        for row in later
        if row.window == first
    ]
    write_rows(uneven.settings, quiet)
    expected = [
        100 * sum(map(avoidable, found)) / sum(map(filled, found))
        for found in (
            [row for row in [*rows(), *quiet] if isinstance(row, FillsRow) and row.window == window]
            for window in sorted({row.window for row in [*rows(), *quiet] if isinstance(row, FillsRow)})
        )
    ]
    assert expected[0] > expected[-1] == 0

    tab = visit(uneven.origin)
    tab.open(f"board=fleet&from={START}&to={END + 10}&refresh=0")
    [label] = [
        each.get_attribute("aria-label") for each in tab.page.locator("#fleet-answer svg.sparkline").all()
    ]
    figures = [float(figure) for figure in re.findall(r"([\d.]+) %", label or "")]
    assert figures == pytest.approx([expected[0], expected[-1], min(expected), max(expected)], abs=0.06)
    assert tab.page.locator("#fleet-answer .card", has=tab.page.locator("svg")).locator(
        "span"
    ).first.text_content() == ("Prefill you could avoid")
    points = tab.page.locator("#fleet-answer polyline").get_attribute("points")
    heights = [float(point.split(",")[1]) for point in (points or "").split()]
    assert len(heights) == len(expected)
    assert heights[-1] == max(heights) > heights[0]


def test_cards_whose_answer_is_still_asked_stay_dimmed_when_that_of_their_curve_is_there(
    uneven: Served, visit: Open
) -> None:
    tab = visit(uneven.origin)
    tab.open(f"board=fleet&from={START}&to={END}&refresh=0")
    tab.page.route("**/api/panels/fleet-answer?*", lambda _route: None)
    chart = tab.page.locator("#fleet-fills .u-over").bounding_box()
    assert chart is not None
    tab.page.mouse.move(chart["x"] + chart["width"] / 4, chart["y"] + 40)
    tab.page.mouse.down()
    tab.page.mouse.move(chart["x"] + chart["width"] / 2, chart["y"] + 40)
    tab.page.mouse.up()
    expect(tab.page.locator("#fleet-fills .body.loading")).to_have_count(0)
    expect(tab.page.locator("#fleet-answer .body.loading")).to_have_count(1)
    tab.page.click("#display")
    tab.page.select_option("#theme", "dark")
    expect(tab.page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(tab.page.locator("#fleet-answer .body.loading")).to_have_count(1)


def avoidable(row: FillsRow) -> int:
    return (
        row.peer_tokens
        + row.peer_and_evicted_tokens
        + row.evicted_tokens
        + row.evicted_elsewhere_tokens
        + row.cleared_tokens
    )


def filled(row: FillsRow) -> int:
    return avoidable(row) + row.promoted_tokens + row.cold_tokens + row.unknown_tokens
