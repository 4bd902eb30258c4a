"""`kvlens advise` on tables with rows: text that fits, JSON that has the same, one line where it cannot."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import clickhouse_connect
import pytest
from click.testing import CliRunner, Result
from clickhouse_connect.driver.client import Client
from msgspec.structs import replace

from pipeline.advice import reading
from pipeline.advice.text import answer_lines
from pipeline.cli.main import kvlens
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.settings import Settings
from tests.support.inputs.board_rows import HOUR

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def run(store: EmbeddedStore, hour: Settings) -> Iterator[Run]:
    """Run the command at the end of the hour that has rows, which are asked once for all that they say."""
    now = HOUR.timestamp() + 3600 + 3
    read, known = reading.read_advice, dict[Any, reading.Advice]()

    def remembered(client: Client, *question: Any) -> reading.Advice:
        if (asked := repr(question)) not in known:
            known[asked] = read(client, *question)
        return known[asked]

    def invoked(*arguments: str, database: str = hour.clickhouse.database) -> Result:
        environment = {"KVLENS_CLICKHOUSE__URL": store.url, "KVLENS_CLICKHOUSE__DATABASE": database}
        return CliRunner().invoke(kvlens, ["advise", *arguments], env=environment, standalone_mode=False)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.cli.commands.advise.time.time", lambda: now)
        patch.setattr(reading, "read_advice", remembered)
        yield invoked


def test_json_has_what_the_views_have(run: Run, store: EmbeddedStore) -> None:
    told: dict[str, Any] = json.loads(run("--json").stdout)
    start = int(HOUR.timestamp())
    assert (told["start"], told["end"]) == (start, start + 3599)
    assert told["answer"][0]["title"] == "Prefill you could avoid"
    database = told["findings"][0]["evidence"].split("FROM ")[1].split(".")[0]
    client = clickhouse_connect.get_client(dsn=store.url, database=database)
    rows = client.query(f"SELECT kind, finding, figure FROM advice(from = {start}, to = {start + 3599})")
    client.close()
    assert [(each["kind"], each["finding"], each["figure"]) for each in told["findings"]] == rows.result_rows
    assert len(rows.result_rows) == 4


def test_text_names_each_finding_and_what_to_do(run: Run) -> None:
    lines = run("--range", "1h").stdout.splitlines()
    assert lines[0].startswith("Prefill you could avoid  90 %")
    assert sum(line.startswith("   do: ") for line in lines) == 4
    assert sum(line.startswith("   see: SELECT") for line in lines) == 4


def test_another_model_has_no_rows(run: Run) -> None:
    assert run("--model", "other").stdout.splitlines() == [
        "no rows yet in this range: does the worker run? `kvlens doctor` shows the cause"
    ]


@pytest.mark.parametrize("wrong", ["5", "h", "0m", "999d", "-5m"])
def test_a_range_that_is_none_is_refused(run: Run, wrong: str) -> None:
    refused = run(f"--range={wrong}")
    assert refused.exception is not None
    assert wrong in str(refused.exception)


def test_tables_that_are_not_there_are_told(run: Run) -> None:
    refused = run(database="nowhere")
    assert "run `kvlens migrate`" in str(refused.exception)


def test_a_range_ends_with_the_last_window_whose_rows_have_come() -> None:
    assert reading.latest_range(1002.9, 60) == (930, 989)
    assert reading.latest_range(1003.0, 60) == (940, 999)


def test_a_narrow_terminal_gets_whole_words() -> None:
    line = reading.Answer(1, "Prefill you could avoid", "57 %", "2.6k tokens/s", "▲ 3 points", 0.57, 0.54)
    other = replace(line, title="Data", figure="7 of 7 complete", change="")
    lines = list(answer_lines([line, other], 60))
    assert max(map(len, lines)) <= 60
    assert lines[0].startswith("Prefill you could avoid  57 %             2.6k")
    assert "".join(lines).count("points") == 1
