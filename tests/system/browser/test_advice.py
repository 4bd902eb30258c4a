"""What a finding rests on is one click away: the board, range, model and replica that it is about."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from playwright.sync_api import expect

from pipeline.advice.reading import read_advice
from pipeline.advice.text import link
from pipeline.clickhouse.client import connect
from schemas.rows import CapacityCurveRow, FillsRow, Row, SourceRow
from tests.support.inputs.board_rows import HOUR, window_rows, write_rows
from tests.system.browser.tabs import Open, Served

BACK = timedelta(days=3)
"""Other tests have rows in the hour itself."""
START = int((HOUR - BACK).timestamp())
END = START + 59
MODEL = "uneven"
LEADS = ("board", "from", "to", "model", "replica")


def rows() -> list[Row]:
    """Return a minute of two replicas, of which the one named `full` evicts what it wants again."""
    found: list[Row] = [
        SourceRow(
            *(MODEL, name, 0, 7, HOUR - BACK, None, "", "vllm", "map", MODEL, "default", 0, 60, []),
            *("complete", HOUR - BACK, 1),
        )
        for name in ("full", "roomy")
    ]
    for name in ("full", "roomy"):
        for row in (row for window in range(6) for row in window_rows(window, name)):
            moved = msgspec.structs.replace(row, model=MODEL, window=row.window - BACK)
            if isinstance(moved, FillsRow | CapacityCurveRow):
                moved = msgspec.structs.replace(moved, hash_domain=MODEL)
            if isinstance(moved, FillsRow) and name == "roomy":
                moved = msgspec.structs.replace(
                    moved, evicted_tokens=0, cold_tokens=moved.cold_tokens + moved.evicted_tokens
                )
            if isinstance(moved, CapacityCurveRow) and name == "roomy":
                moved = msgspec.structs.replace(moved, needed_hist=[])
            found.append(moved)
    return found


def led_to(address: str) -> dict[str, list[str]]:
    fields = parse_qs(urlsplit(address).query)
    return {name: fields[name] for name in LEADS if name in fields}


def test_a_finding_leads_to_the_board_range_and_replica_that_show_it(served: Served, visit: Open) -> None:
    write_rows(served.settings, rows())
    client = connect(served.settings.clickhouse)
    advice = read_advice(client, served.settings.clickhouse.database, START, END)
    client.close()
    [own] = [finding for finding in advice.findings if finding.kind == "capacity"]
    assert (own.board, own.model, own.replicas) == ("replica", MODEL, ["full"])

    tab = visit(served.origin)
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
