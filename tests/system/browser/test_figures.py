"""Every figure that a board shows in the browser is the one that SQL gives, panel by panel."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import clickhouse_connect
import pytest
from playwright.sync_api import Locator

from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.page.question import Question
from pipeline.dashboards.panel import Board, Panel, used_parameters
from tests.support.inputs.board_rows import HOUR
from tests.system.browser.tabs import Open, Served

pytestmark = pytest.mark.night

START = int(HOUR.timestamp())
END = START + 3599


CASES = [*((board, ()) for board in BOARDS), (BOARDS[2], ("b",))]


@pytest.mark.parametrize(
    ("board", "replicas"),
    CASES,
    ids=lambda case: getattr(case, "id", "-".join(case) if isinstance(case, tuple) else None),
)
def test_a_boards_figures_are_those_of_sql(
    served: Served, visit: Open, board: Board, replicas: tuple[str, ...]
) -> None:
    tab = visit(served.origin)
    tab.open(f"board={board.id}&from={START}&to={END}&refresh=0" + "".join(f"&replica={r}" for r in replicas))
    store = served.settings.clickhouse
    client = clickhouse_connect.get_client(dsn=store.url, database=store.database)
    question = Question(START, END, (), replicas)
    compared = 0
    for panel in board.panels:
        parameters = question.parameters(used_parameters(panel.id, panel.sql))
        result = client.query(panel.sql, parameters=parameters)
        expected = EXPECTED[panel.kind](panel, result.column_names, result.result_rows)
        section = tab.page.locator(f"#{panel.id}")
        found = SHOWN.get(panel.kind, figures)(section)
        if panel.kind in ("heatmap", "state_timeline"):
            continue
        assert found == expected, panel.id
        compared += len(expected)
    client.close()
    assert compared > 0


def figures(section: Locator) -> dict[str, float]:
    """Name to value, as the page keeps them beside the text that it shows."""
    found: dict[str, float] = section.evaluate(
        """(section) => Object.fromEntries([...section.querySelectorAll("[data-value]")]
        .map((each) => [each.dataset.figure, Number(each.dataset.value)]))"""
    )
    return found


def cells(section: Locator) -> dict[str, str]:
    texts = section.locator("tbody td").all_text_contents()
    return {str(number): text for number, text in enumerate(texts)}


def cards(section: Locator) -> dict[str, str]:
    texts = section.locator(".card > *").all_text_contents()
    return {str(number): text for number, text in enumerate(texts)}


def listed(section: Locator) -> dict[str, str]:
    texts = section.locator("li > *").all_text_contents()
    return {str(number): text for number, text in enumerate(texts)}


SHOWN: dict[str, Any] = {"table": cells, "answer": cards, "findings": listed}


def of_stat(_: Panel, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, float]:
    return {name: value for name, value in zip(names, rows[0], strict=True) if value is not None}


def of_series(_: Panel, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, float]:
    """The legend shows the newest figure of each series."""
    newest = max(row[0] for row in rows)
    found = {}
    for row in rows:
        labelled = isinstance(row[1], str)
        for name, value in [(row[1], row[2])] if labelled else zip(names[1:], row[1:], strict=True):
            if row[0] == newest and value is not None:
                found[name] = value
    return found


def of_bars(panel: Panel, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, float]:
    if panel.unit == "share":
        return {
            f"{label}: {name}": value
            for label, *values in rows
            for name, value in zip(names[1:], values, strict=True)
        }
    return {label: sum(values) for label, *values in rows}


def of_table(_: Panel, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, str]:
    """Times are the viewer's own; the others stand as they are."""
    return {
        str(number * len(names) + place): text_of(names[place], value)
        for number, row in enumerate(rows)
        for place, value in enumerate(row)
    }


def of_answer(_: Panel, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, str]:
    """A card has every text that says something."""
    return {str(number): text for number, text in enumerate(text for row in rows for text in row if text)}


def of_findings(_: Panel, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, str]:
    texts = (text for row in rows for text in row[1:5] if text)
    return {str(number): text for number, text in enumerate(texts)}


def text_of(name: str, value: Any) -> str:
    if value is None:
        return "\N{EN DASH}"
    if name.endswith("bytes"):
        assert value == 0, "rounded, and in other units"
        return "0 B"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    if isinstance(value, datetime):
        # Chromium runs in the time zone of the test, with English names of months.
        return value.astimezone().strftime("%b %-d, %H:%M:%S")
    return str(value)


def of_curve(_: Panel, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, float]:
    """Below the curves stand their knees."""
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return {f"{row['model']}: knee": row["% of the prefill"] / 100 for row in found if row["knee"]}


def of_lanes(_: Panel, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, float]:
    """Below the lanes stand the newest shares of the first three."""
    newest = {(place, name): value for _, place, name, value in rows if value is not None}
    return {name: newest[place, name] for place, name in sorted(newest)[:3]}


def of_flow(_: Panel, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, float]:
    return {into: tokens for _, into, tokens in rows}


def nothing(*_: object) -> dict[str, float]:
    return {}


EXPECTED: dict[str, Any] = {
    "stat": of_stat,
    "timeseries": of_series,
    "stacked": of_series,
    "bar": of_bars,
    "table": of_table,
    "answer": of_answer,
    "findings": of_findings,
    "heatmap": nothing,
    "state_timeline": nothing,
    "curve": of_curve,
    "lanes": of_lanes,
    "flow": of_flow,
}
