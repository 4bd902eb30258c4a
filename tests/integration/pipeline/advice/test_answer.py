"""The answer and the ranks are those of the rows behind them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import clickhouse_connect
import msgspec
import pytest
from clickhouse_connect.driver.client import Client

from pipeline.advice.reading import Advice, read_advice
from pipeline.advice.text import NOTHING_YET, as_text
from schemas.fleet_rows import CapacityCurveRow, FillsRow
from schemas.rows import EngineCountersRow, Row, SourceRow
from schemas.setting_rows import PrefillSettingsRow
from tests.support.inputs.board_rows import HOUR, hour_of_rows, write_rows
from tests.support.inputs.empty_tables import EmptyTables

START = int(HOUR.timestamp())
END = START + 3599
HALF = START + 1800
FILLED, PEER, EVICTED, AVOIDABLE = 72000, 43200, 14400, 64800
"""Of both replicas in the hour."""


def rate(model: str, tokens_per_second: float) -> PrefillSettingsRow:
    return PrefillSettingsRow(model, HOUR - timedelta(days=1), tokens_per_second, 2.0, None, "", 1)


@contextmanager
def told_of(rows: list[Row], tables: EmptyTables) -> Iterator[Client]:
    """Give a client of tables with these rows."""
    with tables.lent() as settings:
        write_rows(settings, rows)
        client = clickhouse_connect.get_client(
            dsn=settings.clickhouse.url, database=settings.clickhouse.database, autogenerate_session_id=False
        )
        try:
            yield client
        finally:
            client.close()


def read(client: Client, start: int = START, models: tuple[str, ...] = ()) -> Advice:
    return read_advice(client, str(client.database), start, END, models)


def asked(tables: EmptyTables, rows: list[Row], start: int = START) -> Advice:
    with told_of(rows, tables) as client:
        return read(client, start)


@pytest.fixture(scope="module")
def ordinary(empty_tables: EmptyTables) -> Iterator[Client]:
    """A client of the hour's rows without rates. Only read them."""
    with told_of(without_rates(hour_of_rows()), empty_tables) as client:
        yield client


@pytest.fixture(scope="module")
def advice(ordinary: Client) -> Advice:
    """What they say, asked once."""
    return read(ordinary)


def without_rates(rows: list[Row]) -> list[Row]:
    """Rows of engines and settings that do not tell how long prefill takes."""
    return [
        msgspec.structs.replace(row, prefill_seconds=None, prefill_tokens=None)
        if isinstance(row, EngineCountersRow)
        else row
        for row in rows
        if not isinstance(row, PrefillSettingsRow)
    ]


def of_another_model(rows: list[Row]) -> list[Row]:
    """The same again for a model `n`, with replicas of its own."""
    named = (FillsRow, CapacityCurveRow, SourceRow, EngineCountersRow)
    return [
        msgspec.structs.replace(
            row,
            model="n",
            replica=f"n-{row.replica}",
            **({} if isinstance(row, EngineCountersRow) else {"hash_domain": "n"}),
        )
        for row in rows
        if isinstance(row, named)
    ]


def test_nothing_is_said_of_empty_tables(empty_tables: EmptyTables) -> None:
    advice = asked(empty_tables, [])
    assert (advice.answer, advice.findings) == ([], [])
    assert list(as_text(advice)) == [NOTHING_YET]


def test_the_answer_is_that_of_the_rows(advice: Advice) -> None:
    answer = advice.answer
    assert [line.title for line in answer] == ["Prefill you could avoid", "Hit rate", "Biggest lever", "Data"]
    avoidable, hits, lever, data = answer
    assert (avoidable.figure, avoidable.value) == ("90 %", AVOIDABLE / FILLED)
    assert avoidable.detail == f"{AVOIDABLE / 3600:.0f} tokens/s, its cost is not known"
    assert (hits.figure, hits.detail) == ("90 %", "up to 99 % possible")
    assert (lever.figure, lever.value) == ("Routing", PEER / FILLED)
    assert lever.detail == "saves about 60 % of the prefill of m, at most 90 %"
    assert (data.figure, data.detail) == ("1 of 2 complete", "newest rows 0 s old")
    assert [line.change for line in answer] == ["nothing to compare with before", "", "", ""]


@pytest.mark.night
def test_changes_are_against_the_range_before(empty_tables: EmptyTables) -> None:
    rows = [
        msgspec.structs.replace(row, peer_tokens=0, cold_tokens=row.cold_tokens + row.peer_tokens)
        if isinstance(row, FillsRow) and row.window.timestamp() < HALF
        else row
        for row in without_rates(hour_of_rows())
    ]
    avoidable, hits, lever, data = asked(empty_tables, rows, start=HALF).answer
    assert (avoidable.value, avoidable.before) == (0.9, pytest.approx(0.3))
    assert avoidable.change == "▲ 60 points against the range before"
    assert hits.change == "as in the range before"
    assert (lever.value, lever.before) == (0.6, 0.0)
    assert (data.value, data.before) == (0.5, 1.0)
    assert data.change == "▼ 50 points against the range before"


@pytest.mark.night
def test_findings_are_ranked_by_gpu_seconds_where_all_rates_are_known(empty_tables: EmptyTables) -> None:
    rows = without_rates(hour_of_rows())
    rows += of_another_model(rows)
    by_tokens = asked(empty_tables, [*rows, rate("m", 1000.0)]).findings
    assert {finding.ranked_by for finding in by_tokens} == {"tokens"}
    by_cost = asked(empty_tables, [*rows, rate("m", 1000.0), rate("n", 100.0)]).findings
    assert {finding.ranked_by for finding in by_cost} == {"gpu_seconds"}
    routing = {finding.model: finding for finding in by_cost if finding.kind == "routing"}
    assert routing["m"].tokens_per_hour == routing["n"].tokens_per_hour == PEER
    assert routing["m"].gpu_seconds_per_hour == pytest.approx(PEER * 2 / 1000)
    assert routing["n"].gpu_seconds_per_hour == pytest.approx(PEER * 2 / 100)
    assert {finding.rate_basis for finding in by_cost} == {"assumed"}
    costs = [finding.gpu_seconds_per_hour for finding in by_cost]
    assert costs == sorted(costs, key=lambda cost: -(cost or 0.0))
    assert by_cost[0].model == "n"
    gpus = asked(empty_tables, [*without_rates(hour_of_rows()), rate("m", 1000.0)]).answer[0].detail
    assert gpus == f"{AVOIDABLE / 3600:.0f} tokens/s ≈ {AVOIDABLE * 2 / 1000 / 3600:.2f} GPUs, assumed"


@pytest.mark.night
def test_at_most_seven_and_only_of_the_models_chosen(empty_tables: EmptyTables) -> None:
    rows = without_rates(hour_of_rows())
    rows += of_another_model(rows)
    with told_of(rows, empty_tables) as client:
        both, one = read(client), read(client, models=("n",))
    assert len(both.findings) <= 7
    assert {finding.model for finding in both.findings} == {"m", "n"}
    assert {finding.model for finding in one.findings} == {"n"}
    assert [finding.place for finding in one.findings] == list(range(1, len(one.findings) + 1))


def test_a_finding_on_incomplete_data_says_so(advice: Advice) -> None:
    findings = {finding.kind: finding for finding in advice.findings}
    assert findings.keys() == {"routing", "capacity", "hashes", "streams"}
    assert findings["routing"].caveat == "rests on incomplete data: 1 of 2 replicas"
    assert findings["capacity"].at_least_per_hour == EVICTED
    assert findings["streams"].finding == "1 of 2 replicas of m lost events for good: b"
    assert findings["hashes"].replicas == ["b"]


def test_the_evidence_is_a_query_that_answers(ordinary: Client, advice: Advice) -> None:
    for finding in advice.findings:
        assert ordinary.query(finding.evidence).result_rows, finding.evidence


def test_text_fits_a_terminal(advice: Advice) -> None:
    lines = list(as_text(advice, 80, "http://127.0.0.1:8080/"))
    assert [line for line in lines if len(line) > 80 and not line.startswith("   see: ")] == []
    assert lines[0].startswith("Prefill you could avoid")
    assert f"   see: http://127.0.0.1:8080/?board=fleet&from={START}&to={END}&model=m" in lines
    assert sum(line.startswith("   do: ") for line in lines) == len(advice.findings)


@pytest.mark.night
def test_each_range_is_read_from_the_table_that_fits_it(empty_tables: EmptyTables) -> None:
    with told_of(hour_of_rows(), empty_tables) as client:
        each_range_is_read_from_the_table_that_fits_it(client)


def each_range_is_read_from_the_table_that_fits_it(client: Client) -> None:
    halves = [(START, HALF - 1), (HALF, END)]
    known = read(client, HALF)
    # Two thousand sources more: the range is read from minutes now, the one before from ten seconds.
    client.command(
        "INSERT INTO sources (model, replica, opened_at, trust) SELECT 'm', toString(number),"
        f" toDateTime64({HALF}, 3, 'UTC'), 'complete' FROM numbers(2000)"
    )
    chosen = [
        client.query(f"SELECT seconds FROM finest(from = {start}, to = {end})").result_rows[0][0]
        for start, end in halves
    ]
    assert chosen == [10, 60]
    # What the others have of each half is not there to be read.
    for table, start, end in (("fills_10s", HALF, END), ("fills_1m", START, HALF - 1)):
        client.command(
            f"ALTER TABLE {table} DELETE WHERE window BETWEEN toDateTime({start}) AND toDateTime({end})"
            " SETTINGS mutations_sync = 2"
        )
    grown = read(client, HALF)
    assert grown == known
    assert [line.before for line in known.answer[:2]] != [None, None]
