"""Each panel's statement with its values runs as it is, and its file has the same rows."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import clickhouse_connect
import pytest

from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.page.answers import Answer, Answers
from pipeline.dashboards.page.question import Question
from pipeline.dashboards.page.written_out import as_csv, with_values
from pipeline.dashboards.panel import Panel, used_parameters
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.settings import Settings
from tests.support.inputs.board_rows import HOUR, PANEL_SECONDS
from tests.support.suite.night import at_night

PANELS = {panel.id: panel for board in BOARDS for panel in board.panels}
OF_THE_DAY = {
    panel.id: panel
    for panel in {
        tuple(used_parameters(id, each.sql)): each
        for id, each in PANELS.items()
        if each.kind not in ("answer", "findings")
    }.values()
}
"""One for all that have the same parameters, but for the two that are dear."""
HOSTILE = "m', 'x\\"
START = int(HOUR.timestamp())


@pytest.fixture(scope="module")
def answers(hour: Settings) -> Answers:
    return Answers(hour.clickhouse, PANEL_SECONDS)


@pytest.mark.parametrize("chosen", [OF_THE_DAY, *at_night([PANELS])], ids=["some", "panels"])
@pytest.mark.parametrize("models", [("m", HOSTILE), *at_night([(), (HOSTILE,)])], ids=["one", "all", "none"])
def test_statement_and_file_have_the_rows_of_the_panel(
    answers: Answers, store: EmbeddedStore, chosen: Mapping[str, Panel], models: Any
) -> None:
    question = Question(START, START + 3599, models)
    client = clickhouse_connect.get_client(dsn=store.url, database=answers.database)

    async def asked() -> dict[str, Answer]:
        return {panel.id: await answers.of_panel(panel, question) for panel in chosen.values()}

    for id, answer in asyncio.run(asked()).items():
        types = used_parameters(id, PANELS[id].sql)
        written = with_values(PANELS[id].sql, types, question.parameters(types))
        found = client.query(written).result_rows
        expected = list(zip(*answer.columns, strict=True))
        assert [tuple(map(plain, row)) for row in found] == expected, id
        head, *lines = csv.reader(io.StringIO(as_csv(answer)))
        assert tuple(head) == answer.names, id
        assert len(lines) == len(expected), id
        for line, row in zip(lines, expected, strict=True):
            assert [cell(text, value) for text, value in zip(line, row, strict=True)] == list(row), id
    client.close()


def plain(value: Any) -> Any:
    return value.timestamp() if isinstance(value, datetime) else value


def cell(text: str, value: Any) -> Any:
    """Return the text as a value of the kind that it was made of."""
    if value is None:
        return text or None
    if isinstance(value, bool):
        return text == "True"
    if text.endswith("Z") and "T" in text:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()
    return type(value)(text)


def test_a_spreadsheet_computes_no_name() -> None:
    answer = Answer(("replica", "filled"), [["=1+1", "@x", "-a", "a=1"], [1, -2, 3, 4]], (), 10)
    assert as_csv(answer).splitlines() == ["replica,filled", "'=1+1,1", "'@x,-2", "'-a,3", "a=1,4"]
