"""The advice of fleets with mixed doubts, groups alike, two hash domains, rows that stopped or are old."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import clickhouse_connect
import msgspec
import pytest
from clickhouse_connect.driver.client import Client

from pipeline.advice.reading import Advice, Answer, read_advice
from pipeline.dashboards.boards.fleet import FRESHNESS
from pipeline.dashboards.queries import MAIN_GROUPS
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.fleet_rows import FillsRow
from schemas.rows import Row, StreamHealthRow
from schemas.settings import Settings
from tests.support.inputs.board_rows import (
    HOUR,
    WINDOWS,
    hour_of_rows,
    runner,
    window_rows,
    write_rows,
)
from tests.support.inputs.empty_tables import EmptyTables
from tests.support.inputs.large_fleet import LargeFleet
from tests.support.suite.night import by_day

START = int(HOUR.timestamp())
NOON = datetime.now(timezone.utc).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=3)
TABLES = {10: "10s", 60: "1m", 3600: "1h"}


@pytest.fixture
def settings(own: Settings) -> Settings:
    return own


@pytest.fixture
def client(store: EmbeddedStore, settings: Settings) -> Iterator[Client]:
    client = clickhouse_connect.get_client(
        dsn=store.url, database=settings.clickhouse.database, autogenerate_session_id=False
    )
    yield client
    client.close()


def advised(client: Client, start: int, end: int) -> Advice:
    return read_advice(client, str(client.database), start, end)


def data_line(advice: Advice) -> Answer:
    return next(line for line in advice.answer if line.title == "Data")


def rows_of(client: Client, sql: str, start: int, end: int) -> list[tuple[Any, ...]]:
    return [*client.query(sql, parameters={"from": start, "to": end, "step": 60}).result_rows]


def open_sources(client: Client, replicas: int, opened: datetime) -> None:
    client.command(
        "INSERT INTO sources (model, replica, opened_at, hash_domain, trust)"
        f" SELECT 'm', toString(number), toDateTime64({int(opened.timestamp())}, 3, 'UTC'), 'd', 'complete'"
        f" FROM numbers({replicas})"
    )


def ended_source(client: Client, opened: datetime, closed: datetime) -> None:
    """Write a source that ended; its row from before that is not merged away yet."""
    begun, ended = (f"toDateTime64({int(moment.timestamp())}, 3, 'UTC')" for moment in (opened, closed))
    for version, closed_at in enumerate(("NULL", ended)):
        client.command(
            "INSERT INTO sources (model, replica, opened_at, closed_at, hash_domain, trust, version) SELECT"
            f" 'm', 'gone', {begun}, {closed_at}, 'd', 'complete', {version}"
        )


def fill(client: Client, seconds: int, begin: datetime, end: datetime, replicas: int, figures: str) -> None:
    """Write equal rows of every window between two moments; `figures` names columns."""
    first, last = (int(moment.timestamp()) // seconds for moment in (begin, end))
    client.command(
        f"INSERT INTO fills_{TABLES[seconds]} (window, hash_domain, model, replica, sampled_one_in, trust,"
        f" version, {', '.join(each.split(' AS ')[1] for each in figures.split(', '))})"
        f" SELECT toDateTime({seconds} * ({first} + intDiv(number, {replicas})), 'UTC'), 'd', 'm',"
        f" toString(number % {replicas}), 1, 'complete', 1, {figures}"
        f" FROM numbers({replicas * (last - first)})"
    )


@pytest.mark.parametrize("with_drift", by_day([False, True], [True]))
def test_each_doubt_counts_its_own_replicas(settings: Settings, client: Client, with_drift: bool) -> None:
    doubts = {**{f"r{number}": "partial" for number in range(6)}, "x": "degraded"}
    rows: list[Row] = []
    for number in range(30):
        for place, (replica, trust) in enumerate(doubts.items()):
            for row in window_rows(number, replica):
                if isinstance(row, FillsRow):
                    rows.append(msgspec.structs.replace(row, trust=trust, unknown_tokens=1 + place))
                elif isinstance(row, StreamHealthRow):
                    drift = 5 if with_drift and replica == "r0" else 0
                    rows.append(msgspec.structs.replace(row, trust=trust, drift_blocks=drift))
    write_rows(settings, rows)
    found = [each for each in advised(client, START, START + 299).findings if each.kind == "streams"]
    told = {each.finding: (each.replicas, each.tokens_per_hour, each.action) for each in found}
    late = ["r5", "r4", "r3", "r2", "r1"] + ([] if with_drift else ["r0"])
    names = {replica: 1 + place for place, replica in enumerate(doubts)}
    expected = {
        "1 of 7 replicas of m lost events for good: x": (
            ["x"],
            "Nothing now: the next restart or cleared cache of each completes it; `kvlens doctor` says why "
            "no replay did",
        ),
        f"{len(late)} of 7 replicas of m ran before kvlens did, so older blocks are unknown, first r5": (
            late,
            "Nothing now: a restart or a cleared cache completes it",
        ),
    }
    if with_drift:
        expected["1 of 7 replicas of m announce more blocks than the engine has: r0"] = (
            ["r0"],
            "Do not trust its occupancy before its next restart, or until its cache is cleared",
        )
    assert told == {
        finding: (replicas, pytest.approx(30 * 12 * sum(names[each] for each in replicas)), action)
        for finding, (replicas, action) in expected.items()
    }
    assert {each.caveat for each in found} == {
        f"rests on incomplete data: {len(replicas)} of 7 replicas" for replicas, _ in expected.values()
    }


@pytest.mark.night
def test_a_store_without_new_rows_says_for_how_long(
    store: EmbeddedStore, settings: Settings, client: Client
) -> None:
    write_rows(settings, hour_of_rows())
    ended = START + 3600
    now = ended + 31 * 60
    line = data_line(advised(client, now - 6 * 3600, now))
    assert (line.figure, line.detail) == ("1 of 2 complete", "no rows for at least 31 min")
    asked = runner(store, settings)
    ages = {
        now: asked("fleet-freshness", FRESHNESS.sql, **{"from": now - 6 * 3600, "to": now}).result_rows
        for now in (ended + 20 * 60, now)
    }
    assert ages == {ended + 20 * 60: [(20 * 60,)], now: [(31 * 60,)]}
    # Of hours it is certain that none came in the last half hour.
    day = data_line(advised(client, now - 2 * 86_400, now))
    assert (day.figure, day.detail) == ("1 of 2 complete", "no rows for at least 31 min")
    assert asked("fleet-freshness", FRESHNESS.sql, **{"from": now, "to": now + 60}).result_rows == [(None,)]


@pytest.mark.night
def test_a_stream_that_stopped_in_the_hour_is_not_of_now(settings: Settings, client: Client) -> None:
    """Rows of hours must not hide that all came in the first ten minutes of theirs."""
    write_rows(settings, [row for number in range(60) for row in window_rows(number, "a")])
    now = START + 50 * 60
    line = data_line(advised(client, now - 2 * 86_400, now))
    assert (line.figure, line.detail) == ("1 of 1 complete", "no rows for at least 30 min")
    line = data_line(advised(client, now - 1800, now - 1200))
    assert (line.figure, line.detail) == ("1 of 1 complete", "newest rows 1200 s old")


@pytest.mark.parametrize(
    ("seconds", "length", "old"),
    [(60, 6 * 3600, "59 s"), pytest.param(3600, 2 * 86_400, "59 min", marks=pytest.mark.night)],
    ids=["6h", "2d"],
)
@pytest.mark.night
def test_a_range_whose_ten_second_rows_are_gone_has_its_data(
    client: Client, seconds: int, length: int, old: str
) -> None:
    ended = NOON - timedelta(days=7)
    fleet = LargeFleet(replicas=4, models=1, shards=1, prefixes=1)
    fleet.write(client, seconds, ended - timedelta(seconds=length), ended)
    fleet.write_state(client, ended - timedelta(seconds=length))
    to = int(ended.timestamp()) - 1
    line = data_line(advised(client, to + 1 - length, to))
    assert (line.figure, line.detail) == ("4 of 4 complete", f"newest rows at most {old} old")
    later = data_line(advised(client, to + 7201 - length, to + 7201))
    assert (later.figure, later.detail) == ("4 of 4 complete", "no rows for at least 2 h")


@pytest.mark.parametrize(
    ("seconds", "begins", "lasts"),
    [
        (10, 7, 1803),
        pytest.param(60, 31, 6 * 3600, marks=pytest.mark.night),
        pytest.param(3600, 59 * 60, 26 * 3600 + 13, marks=pytest.mark.night),
    ],
)
def test_rates_are_over_the_windows_that_are_read(
    client: Client, seconds: int, begins: int, lasts: int
) -> None:
    open_sources(client, 2, NOON - timedelta(days=2))
    fill(
        client,
        seconds,
        NOON - timedelta(hours=1),
        NOON + timedelta(hours=30),
        2,
        f"{seconds} * 100 AS filled_tokens, {seconds} * 50 AS peer_tokens",
    )
    start = int(NOON.timestamp()) + begins
    advice = advised(client, start, start + lasts)
    routing = next(each for each in advice.findings if each.kind == "routing")
    assert routing.tokens_per_hour == pytest.approx(2 * 50 * 3600)
    assert advice.answer[0].detail.startswith("100 tokens/s")
    ((since, covered),) = rows_of(
        client,
        "SELECT since, seconds FROM observed(from = {from:DateTime}, to = {to:DateTime})",
        start,
        start + lasts,
    )
    assert covered % seconds == 0
    assert abs(since.replace(tzinfo=timezone.utc).timestamp() - start) < seconds


@pytest.mark.parametrize(
    ("sources", "lasts", "seconds"),
    [
        pytest.param(1, 7200, 10, marks=pytest.mark.night),
        pytest.param(277, 3600, 10, marks=pytest.mark.night),
        pytest.param(1, 7201, 60, marks=pytest.mark.night),
        pytest.param(278, 3600, 60, marks=pytest.mark.night),
        pytest.param(277, 86_400, 60, marks=pytest.mark.night),
        (278, 86_400, 3600),
    ],
)
def test_windows_are_those_that_other_panels_read(
    client: Client, sources: int, lasts: int, seconds: int
) -> None:
    """The statement looks up itself which table serves a range: by the rule of `finest`."""
    end = NOON + timedelta(hours=1)
    open_sources(client, sources, NOON - timedelta(days=4))
    for number, length in enumerate(TABLES, 1):
        fill(
            client,
            length,
            end - timedelta(days=2),
            end,
            1,
            f"{number} AS filled_tokens, {number} AS peer_tokens",
        )
    stop = int(end.timestamp()) - 1
    start = stop - lasts
    ((found,),) = rows_of(
        client, "SELECT seconds FROM finest(from = {from:DateTime}, to = {to:DateTime})", start, stop
    )
    filled = rows_of(
        client,
        "SELECT max(prefill_tokens) / (SELECT count() FROM fills_windows_in_utc("
        f"from = {{from:DateTime}}, to = {{to:DateTime}}, step = 10, seconds = {seconds}))"
        " FROM briefing(from = {from:DateTime}, to = {to:DateTime}, models = [])",
        start,
        stop,
    )
    assert (found, filled) == (seconds, [(1 + list(TABLES).index(seconds),)])


def test_seconds_before_the_first_source_do_not_count(client: Client) -> None:
    open_sources(client, 2, NOON + timedelta(minutes=30))
    # Ended in the first window, before the range.
    ended_source(client, NOON + timedelta(minutes=5), NOON + timedelta(minutes=10))
    start = int(NOON.timestamp()) + 1200
    for lasts, since in ((900, 1800), (30 * 3600, 300)):
        ((found,),) = rows_of(
            client,
            "SELECT toUnixTimestamp(since) FROM observed(from = {from:DateTime}, to = {to:DateTime})",
            start,
            start + lasts,
        )
        assert found - int(NOON.timestamp()) == since


def test_with_what_was_watched_for_half_of_its_time_nothing_is_compared(client: Client) -> None:
    opened, end = NOON - timedelta(minutes=30), NOON + timedelta(hours=1)
    open_sources(client, 1, opened)
    ended_source(client, NOON - timedelta(hours=3), NOON - timedelta(hours=2))
    fill(client, 10, opened, end, 1, "2 AS filled_tokens, 1 AS peer_tokens")
    answer = advised(client, int(NOON.timestamp()), int(end.timestamp()) - 1).answer
    assert (answer[0].title, answer[0].before) == ("Prefill you could avoid", None)


def test_of_groups_alike_the_first_counts(client: Client) -> None:
    replicas = 64
    open_sources(client, replicas, NOON - timedelta(days=1))
    for group in (3, 1, 0, 2):
        figures = f"{group} AS group_idx, 100 AS filled_tokens, {10 + group} AS peer_tokens"
        fill(client, 10, NOON, NOON + timedelta(minutes=1), replicas, figures)
        client.command(
            "INSERT INTO capacity_curve_10s (window, hash_domain, model, replica, group_idx, needed_hist,"
            f" sampled_one_in, trust, version) SELECT toDateTime({int(NOON.timestamp())}, 'UTC'), 'd', 'm',"
            f" toString(number), {group}, [{1 + group}], 1, 'complete', 1 FROM numbers({replicas})"
        )
    start = int(NOON.timestamp())
    between = "from = {from:DateTime}, to = {to:DateTime}"
    for sql, expected in {
        f"SELECT DISTINCT peer_tokens FROM hit_potential_series({between})": 60,
        f"SELECT DISTINCT peer_tokens FROM hit_potential({between})": 60,
        f"SELECT DISTINCT routing_tokens FROM replica_facts({between})": 60,
        f"SELECT DISTINCT needed[1] FROM replica_facts({between})": 1,
        f"SELECT DISTINCT saved_tokens FROM capacity_gain_series({between})": 1,
        f"SELECT DISTINCT saved_tokens FROM capacity_gain({between})": 1,
        f"SELECT DISTINCT group_idx FROM fills_series({between}, step = {{step:UInt32}})"
        f" WHERE {MAIN_GROUPS}": 0,
    }.items():
        assert rows_of(client, sql, start, start + 59) == [(expected,)], sql


@pytest.mark.night
def test_hits_of_a_replica_in_two_hash_domains_count_once(empty_tables: EmptyTables) -> None:
    """As after what the finding `hashes` advises: another hash_scheme for the replica."""
    half = HOUR + timedelta(seconds=5 * WINDOWS)
    moved = [
        msgspec.structs.replace(row, hash_domain="e")
        if isinstance(row, FillsRow) and row.replica == "b" and row.window >= half
        else row
        for row in hour_of_rows()
    ]
    figures = []
    for rows in (hour_of_rows(), moved):
        with empty_tables.lent() as settings:
            write_rows(settings, rows)
            client = clickhouse_connect.get_client(
                dsn=settings.clickhouse.url,
                database=settings.clickhouse.database,
                autogenerate_session_id=False,
            )
            sums = [
                rows_of(
                    client,
                    "SELECT sum(queried_tokens), sum(hit_tokens), sum(ideal_hit_rate * queried_tokens),"
                    f" sum(avoidable_tokens) FROM {view}(from = {{from:DateTime}}, to = {{to:DateTime}})",
                    START,
                    START + 3599,
                )
                for view in ("hit_potential", "hit_potential_series", "replica_facts")
            ]
            domains = rows_of(
                client,
                "SELECT hash_domain, queried_tokens > 0"
                " FROM hit_potential(from = {from:DateTime}, to = {to:DateTime})"
                " WHERE replica = 'b' ORDER BY hash_domain",
                START,
                START + 3599,
            )
            figures.append((sums, advised(client, START, START + 3599).answer[:2]))
            client.close()
    assert figures[0] == figures[1]
    assert domains == [("d", None), ("e", True)]


@pytest.mark.parametrize(
    ("seconds", "lasts", "date"),
    [
        pytest.param(60, 22 * 3600, "", marks=pytest.mark.night),
        (60, 23 * 3600, "{:%F} "),
        pytest.param(3600, 30 * 3600, "{:%F} ", marks=pytest.mark.night),
    ],
)
@pytest.mark.night
def test_moments_have_a_date_where_the_hour_alone_is_ambiguous(
    client: Client, seconds: int, lasts: int, date: str
) -> None:
    open_sources(client, 4, NOON - timedelta(days=2))
    restarted = NOON + timedelta(hours=5)
    client.command(
        "INSERT INTO sources"
        " (model, replica, incarnation, opened_at, closed_at, closed_reason, hash_domain, trust)"
        f" SELECT 'm', toString(number), 1, toDateTime64({int(NOON.timestamp())}, 3, 'UTC'),"
        f" toDateTime64({int(restarted.timestamp())} + number, 3, 'UTC'), 'restarted', 'd', 'complete'"
        " FROM numbers(3)"
    )
    until = NOON + timedelta(hours=31)
    fill(client, seconds, NOON, until, 4, "100 AS filled_tokens, 50 AS cleared_tokens")
    client.command(
        f"INSERT INTO redundancy_{TABLES[seconds]} (window, hash_domain, model, medium, owners_2,"
        " unique_tokens, physical_tokens, sampled_one_in, trust, version)"
        f" SELECT toDateTime({int(NOON.timestamp())}, 'UTC'), 'd', 'm', 'gpu', 1, 50, 100, 1, 'complete', 1"
    )
    start = int(NOON.timestamp())
    findings = advised(client, start, start + lasts).findings
    (finding,) = [each.finding for each in findings if each.kind == "restarts"]
    told = date.format(restarted)
    assert finding.startswith(f"3 of 4 replicas of m restarted together at {told}{restarted:%H:%M} UTC: ")
