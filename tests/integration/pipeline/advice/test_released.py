"""`briefing` says what that of release 0.1.0 says, column by column, on every kind of table and finding."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client

from pipeline.clickhouse import migrations
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.settings import ClickHouse, Settings
from tests.support.inputs.large_fleet import LargeFleet
from tests.support.suite.night import at_night

RELEASED = "0011_more_engines.sql"
"""The last file of release 0.1.0."""
FLEET = LargeFleet(replicas=24, models=3, shards=2, prefixes=10)
UNTIL = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0)
PLAINER = {
    "were joined late": "ran before kvlens did",
    " unlike the other replicas of ": " differently from the other replicas of ",
}
"""{words of the release: what replaced them}."""
KINDS = {"routing", "capacity", "restarts", "prefix", "hashes", "streams"}
BESIDE = (
    # A second group, which fills less on some replicas and more on others.
    "INSERT INTO fills_{width} SELECT * REPLACE (1 AS group_idx, intDiv(filled_tokens, 2) AS filled_tokens)"
    " FROM fills_{width} WHERE replica < 'replica-0008' AND group_idx = 0",
    "INSERT INTO fills_{width} SELECT * REPLACE (2 AS group_idx, 2 * filled_tokens AS filled_tokens,"
    " 3 * cleared_tokens AS cleared_tokens) FROM fills_{width}"
    " WHERE replica > 'replica-0019' AND group_idx = 0",
    "INSERT INTO capacity_curve_{width} SELECT * REPLACE (2 AS group_idx, arrayReverse(needed_hist) AS"
    " needed_hist) FROM capacity_curve_{width} WHERE replica > 'replica-0021' AND group_idx = 0",
    "INSERT INTO stream_health_{width} SELECT * REPLACE (5 AS drift_blocks, 2 AS version)"
    " FROM stream_health_{width} WHERE replica = 'replica-0003'",
)
STATE = (
    "INSERT INTO models (model, kv_bytes_per_token, version)"
    " VALUES ('model-0', 131072, 1), ('model-2', 1, 1)",
    "INSERT INTO hash_groups SELECT * REPLACE (true AS alone, 0 AS alike, 2 AS version) FROM hash_groups"
    " WHERE replica = 'replica-0005'",
    # A prefix that is new, and refilled more than all others.
    "INSERT INTO hot_prefixes_10s SELECT * REPLACE (777 AS prefix, 400 * refilled_tokens AS refilled_tokens)"
    " FROM (SELECT * FROM hot_prefixes_10s"
    " WHERE model = 'model-1' AND window >= toDateTime({until} - 120, 'UTC')"
    " ORDER BY prefix LIMIT 1 BY window, shard)",
    # Model 0 restarts half of its replicas a minute apart, ten minutes and five hours before the end.
    "INSERT INTO sources (model, replica, dp_rank, incarnation, opened_at, closed_at, closed_reason, engine,"
    " wire_era, hash_domain, tenant, first_seq, last_seq, trust, trust_since, version)"
    " SELECT 'model-0', concat('replica-', leftPad(toString(3 * (number % 4)), 4, '0')), 0, 2 + number,"
    " opened,"
    " toDateTime64({until} - if(number < 4, 600, 18000) - 60 * (number % 4), 3, 'UTC'), 'restarted',"
    " 'vllm', 'map', 'domain-model-0', 'default', 0, 1, 'complete',"
    " toDateTime64({until} - 90000, 3, 'UTC') AS opened, 1 FROM numbers(8)",
)


def clients(store: EmbeddedStore, directory: Path) -> Iterator[Client]:
    """Give a database of the release, then one of now, with equal rows."""
    for path in migrations.DIRECTORY.glob("*.sql"):
        if path.name <= RELEASED:
            shutil.copy(path, directory)
    for files in (directory, migrations.DIRECTORY):
        database = f"briefing_{secrets.token_hex(4)}"
        migrations.apply(Settings(clickhouse=ClickHouse(url=store.url, database=database)), directory=files)
        client = clickhouse_connect.get_client(
            dsn=store.url, database=database, autogenerate_session_id=False
        )
        FLEET.write_day(client, UNTIL, fine=timedelta(hours=1), day=timedelta(days=1))
        for width in ("10s", "1m", "1h"):
            for statement in BESIDE:
                client.command(statement.format(width=width))
        for statement in STATE:
            client.command(statement.replace("{until}", str(int(UNTIL.timestamp()))))
        yield client


@pytest.fixture(scope="module")
def both(store: EmbeddedStore, tmp_path_factory: pytest.TempPathFactory) -> tuple[Client, Client]:
    released, current = clients(store, tmp_path_factory.mktemp("released"))
    return released, current


def told(client: Client, seconds: int, models: list[str]) -> list[dict[str, Any]]:
    """Return the rows of a range that begins and ends inside windows of every length."""
    end = UNTIL - timedelta(seconds=7)
    result = client.query(
        "SELECT * FROM briefing(from = {from:DateTime}, to = {to:DateTime}, models = {models:Array(String)})"
        " ORDER BY part, place",
        parameters={"from": end - timedelta(seconds=seconds), "to": end, "models": models},
    )
    rows = list(result.named_results())
    return [row for row in rows if row["part"] == "answer"] + by_rank(
        [row for row in rows if row["part"] == "finding"]
    )


def by_rank(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return findings in the order they have, those worth the same by name.

    Which of these comes first follows from the order in which a store adds up fractions.
    """
    worth = [row[f"{row['ranked_by']}_per_hour"] for row in findings]
    assert worth == pytest.approx(sorted(worth, reverse=True), rel=1e-9)
    ranks = [float(f"{each:.9g}") for each in worth]
    order = sorted(
        zip(ranks, findings, strict=True),
        key=lambda one: (-one[0], one[1]["kind"], one[1]["hash_domain"], one[1]["subject"]),
    )
    return [row | {"place": place} for place, (_, row) in enumerate(order, 1)]


def divide_by_what_is_read(released: Client, seconds: int) -> None:
    """Have the release divide by the seconds of the windows that it reads, not by those of the range.

    That was a fault of it: it read hours whole and divided by the part of them that is in the range.
    """
    width = 10 if seconds <= 7200 else 60 if seconds <= 86_400 else 3600
    begin = int((UNTIL - timedelta(seconds=7 + seconds)).timestamp())
    # All ranges end in the last window. Windows of ten seconds are those that begin in the range.
    begin = -(-begin // width) * width if width == 10 else begin // width * width
    covered = int(UNTIL.timestamp()) - max(begin, int(UNTIL.timestamp()) - 90_000)
    released.command(
        "CREATE OR REPLACE VIEW observed_in_utc AS SELECT {from:DateTime('UTC')} AS since,"
        f" {covered} + 0 * toUnixTimestamp({{to:DateTime('UTC')}}) AS seconds"
    )


def without_date(text: str) -> str:
    """Return a text as the release had it, over ranges in which an hour alone is ambiguous."""
    return re.sub(r"\b\d{4}-\d\d-\d\d (?=\d\d:\d\d UTC)", "", text)


def in_words_of_now(row: dict[str, Any], released: Client) -> dict[str, Any]:
    """Return a row of the release without its database, in the words that replaced those of the release."""
    plainer = {name: value for name, value in row.items() if isinstance(value, str)}
    for before, now in {f"FROM {released.database}.": "FROM ", **PLAINER}.items():
        plainer = {name: text.replace(before, now) for name, text in plainer.items()}
    return row | plainer


@pytest.mark.parametrize("models", [[], ["model-1", "model-2"]], ids=["all", "two"])
@pytest.mark.parametrize("seconds", at_night([290, 1700, 3599, 6 * 3600, 86_000, 2 * 86_400]))
def test_rows_are_those_of_the_release(both: tuple[Client, Client], seconds: int, models: list[str]) -> None:
    released, current = both
    divide_by_what_is_read(released, seconds)
    expected = [in_words_of_now(row, released) for row in told(released, seconds, models)]
    found = told(current, seconds, models)
    assert len(found) == len(expected) > 4
    for row, known in zip(found, expected, strict=True):
        row["evidence"] = row["evidence"].replace(f"FROM {current.database}.", "FROM ")
        if seconds >= 82_800:
            row["title"] = without_date(row["title"])
        assert row.keys() == known.keys()
        for name, value in known.items():
            # The order in which a store adds up fractions is its own.
            wanted = pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
            assert row[name] == wanted, (row["part"], row["place"], name)


@pytest.mark.night
def test_every_kind_of_finding_is_among_them(both: tuple[Client, Client]) -> None:
    _, current = both
    found = {row["kind"] for seconds in (290, 3599, 6 * 3600) for row in told(current, seconds, [])}
    assert found - {""} == KINDS
