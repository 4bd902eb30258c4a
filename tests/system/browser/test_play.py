"""The SQL console of the embedded store."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest
from playwright.sync_api import expect

from schemas.settings import Settings
from tests.system.browser.tabs import Open


def test_it_shows_rows_and_says_what_is_wrong(hour: Settings, visit: Open) -> None:
    store = hour.clickhouse
    # A statement that is refused is an answer with an error's status, which the browser notes as well.
    tab = visit(store.url, quiet=False)
    tab.page.goto(f"{store.url}/play")
    tab.page.fill("#database", store.database)
    tab.page.fill("#statement", "SELECT number, toString(number) AS t, [1, NULL] AS l FROM numbers(2)")
    tab.page.click("button")
    expect(tab.page.locator("#said")).to_contain_text("2 rows in ")
    assert tab.page.locator("#rows tr").all_inner_texts() == [
        "number\tt\tl",
        "0\t0\t[1,null]",
        "1\t1\t[1,null]",
    ]
    tab.page.fill("#statement", "SELECT number FROM numbers(3000)")
    tab.page.press("#statement", "Control+Enter")
    expect(tab.page.locator("#said")).to_contain_text("the first 1000 of at least ")
    for wrong, problem in (
        ("SELECT no_such", "UNKNOWN_IDENTIFIER"),
        ("CREATE TABLE t (a UInt8)", "READONLY"),
    ):
        tab.page.fill("#statement", wrong)
        tab.page.press("#statement", "Control+Enter")
        expect(tab.page.locator("#said")).to_contain_text(problem)
    assert tab.fits(390)


def test_it_begins_with_what_is_cached_now(hour: Settings, visit: Open) -> None:
    store = hour.clickhouse
    tab = visit(store.url)
    tab.page.goto(f"{store.url}/play")
    tab.page.fill("#database", store.database)
    tab.page.click("button")
    expect(tab.page.locator("#said")).to_contain_text(" rows in ")
    expect(tab.page.locator("#rows tr").first).to_contain_text("replica")


@pytest.mark.parametrize("name", ["none.html", "..%2Ffront.py", "play.html%00"])
def test_it_has_no_other_files(hour: Settings, name: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{hour.clickhouse.url}/play/{name}", timeout=60)
