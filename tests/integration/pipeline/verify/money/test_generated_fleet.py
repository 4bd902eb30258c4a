"""Costs of a generated fleet: the views say what a recount of its rows says; verify finds what differs."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

import clickhouse_connect
import msgspec
import pytest
from clickhouse_connect.driver.client import Client

from pipeline.verify.findings import Findings
from pipeline.verify.money.check import VIEW, check_money
from pipeline.verify.money.recount import Cost, Hour, Inputs, Key, Scraped, costs
from pipeline.verify.store import StoredTables
from schemas.fleet_rows import FillsRow
from schemas.rows import EngineCountersRow, SourceRow
from schemas.setting_rows import PrefillSettingsRow
from schemas.settings import Settings
from tests.support.inputs.board_rows import write_rows
from tests.support.inputs.empty_tables import EmptyTables
from tests.support.suite.night import first_by_day

MIDNIGHT = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
BEGIN, END = MIDNIGHT - timedelta(hours=2), MIDNIGHT + timedelta(hours=2)
"""Of all rows. The price changes at midnight."""
WINDOW, SCRAPE = timedelta(seconds=60), timedelta(seconds=30)
MODELS = {"priced": (None, 2.0, 3.0, 4.5), "timed": (1000.0, 8.0, None, None), "bare": None}
"""Tokens a second, GPUs, price and later price in the settings."""
CAUSES = ("promoted", "peer", "peer_and_evicted", "evicted", "evicted_elsewhere", "cleared")


@dataclass
class Generated:
    """Rows, as objects, and what they are made of."""

    fills: list[FillsRow] = field(default_factory=list)
    scrapes: list[EngineCountersRow] = field(default_factory=list)
    sources: list[SourceRow] = field(default_factory=list)
    settings: list[PrefillSettingsRow] = field(default_factory=list)

    @property
    def rows(self) -> list[Any]:
        return [*self.fills, *self.scrapes, *self.sources, *self.settings]


def generated(seed: int) -> Generated:
    chance, made = random.Random(seed), Generated()
    for model, settings in MODELS.items():
        if settings is not None:
            speed, gpus, price, later = settings
            made.settings.append(
                PrefillSettingsRow(model, BEGIN + timedelta(hours=1), speed, gpus, price, "EUR", 1)
            )
            if later is not None:
                made.settings.append(PrefillSettingsRow(model, MIDNIGHT, speed, gpus, later, "EUR", 2))
        for number in range(4):
            replica, tenant = f"{model}-{number}", f"tenant-{number % 2}"
            scraped = number != 3
            for rank in range(1 + number % 2):
                _rank(made, chance, (model, replica, rank), tenant, scraped=scraped, counted=number != 2)
    return made


def _rank(
    made: Generated,
    chance: random.Random,
    source: tuple[str, str, int],
    tenant: str,
    *,
    scraped: bool,
    counted: bool,
) -> None:
    domain = f"{source[0]}/x/{tenant}"
    made.sources.append(
        SourceRow(
            *source, 7, BEGIN - timedelta(hours=1), None, "", "vllm", "map", domain, tenant, "", 0, 9, [],
            "complete", BEGIN, 1,
        )
    )  # fmt: skip
    at = BEGIN
    while at < END:
        for group in range(2):
            tokens = {cause: 16 * chance.randrange(4) for cause in CAUSES}
            figures = {f"{cause}_tokens": count for cause, count in tokens.items()}
            figures["peer_at_receivers_tokens"] = tokens["peer"] * chance.randrange(2)
            figures["evicted_at_receivers_tokens"] = tokens["evicted_elsewhere"] * chance.randrange(2)
            empty = dict.fromkeys(FillsRow.__struct_fields__, 0)
            row = {
                **empty,
                **figures,
                **dict(zip(("model", "replica", "dp_rank"), source, strict=True)),
                "window": at,
                "hash_domain": domain,
                "group_idx": group,
                "shard": chance.randrange(3),
                "filled_tokens": sum(tokens.values()) + 16 * chance.randrange(3) * group,
                "regret_hist": [],
                "sampled_one_in": 1,
                "trust": "complete",
                "version": 1,
            }
            made.fills.append(FillsRow(**row))
        at += WINDOW
    queries = hits = external = tokens = 0
    seconds, at = 0.0, BEGIN - timedelta(hours=1) + SCRAPE * chance.random()
    while scraped and at < END:
        if chance.random() < 0.002 and at > MIDNIGHT + timedelta(hours=1):
            queries = hits = external = tokens = 0
            seconds = 0.0
        found, loaded, computed = (16 * chance.randrange(20) for _ in range(3))
        queries, hits, external = queries + found + loaded + computed, hits + found, external + loaded
        tokens, seconds = tokens + computed, seconds + 40.0 * chance.random()
        moment = at.replace(microsecond=at.microsecond // 1000 * 1000)
        made.scrapes.append(
            EngineCountersRow(
                moment, *source, queries, hits, queries - hits, external, 100, 16, 0.5, seconds,
                tokens if counted else None, *[None] * 5, 1,
            )
        )  # fmt: skip
        at += SCRAPE


def inputs(made: Generated, begin: datetime, end: datetime) -> Inputs:
    """Return what the figures of a range follow from."""
    hours: defaultdict[tuple[str, str, int, datetime], list[Scraped]] = defaultdict(list)
    hits, before = [], {}
    for row in sorted(made.scrapes, key=lambda row: row.time):
        rank = (row.model, row.replica, row.dp_rank)
        queries, found, external = row.prefix_cache_queries, row.prefix_cache_hits, row.external_hits
        assert queries is not None
        assert found is not None
        assert external is not None
        assert row.prefill_seconds is not None
        tokens = queries - found - external if row.prefill_tokens is None else row.prefill_tokens
        hour = row.time.replace(minute=0, second=0, microsecond=0)
        hours[(*rank, hour)].append(Scraped(row.time, tokens, row.prefill_seconds))
        if rank in before and begin <= row.time < end + timedelta(seconds=10):
            old_queries, old_found = before[rank]
            fell = queries < old_queries or found < old_found
            hits.append((row.model, row.replica, row.time, found - (0 if fell else old_found)))
        before[rank] = (queries, found)
    return Inputs(
        begin,
        end,
        [msgspec.structs.asdict(row) for row in made.fills if begin <= row.window <= end],
        hits,
        [Hour(*key, scrapes[0], scrapes[-1]) for key, scrapes in hours.items()],
        [msgspec.structs.asdict(row) for row in made.sources],
        [msgspec.structs.asdict(row) for row in made.settings],
    )


@dataclass
class Database:
    settings: Settings
    client: Client
    made: Generated

    def view(self, begin: datetime, end: datetime, step: int | None = None) -> dict[Any, Cost]:
        """Return the rows of the view, or of its series added up."""
        name = "prefill_costs" if step is None else "prefill_costs_series"
        bounds = f"from = '{begin:%F %T}', to = '{end:%F %T}'" + (f", step = {step}" if step else "")
        rates = (
            "sum(tokens_without_rate), sum(unpriced_tokens)"
            if step is None
            else "sumIf(v.tokens, isNull(v.gpu_seconds)), sumIf(v.tokens, isNull(v.cost))"
        )
        result = self.client.query(
            "SELECT tenant, model, replica, toString(kind), cause, currency, sum(v.tokens) AS all, "
            f"sum(v.gpu_seconds), sum(v.cost), {rates}, toString(maxIf(v.rate_basis, v.tokens > 0)) "
            f"FROM {self.settings.clickhouse.database}.{name}({bounds}) AS v GROUP BY 1, 2, 3, 4, 5, 6 "
            "HAVING all > 0"
        )
        return {Key(*row[:6]): Cost(*row[6:]) for row in result.result_rows}


@pytest.fixture(scope="module", params=first_by_day([1, 2, 3]))
def fleet(empty_tables: EmptyTables, request: pytest.FixtureRequest) -> Iterator[Database]:
    made = generated(request.param)
    with empty_tables.lent() as settings:
        write_rows(settings, made.rows)
        client = clickhouse_connect.get_client(dsn=settings.clickhouse.url, autogenerate_session_id=False)
        yield Database(settings, client, made)
        client.close()


def assert_equal(found: dict[Any, Cost], wanted: dict[Key, Cost]) -> None:
    assert set(found) == set(wanted)
    for key, cost in wanted.items():
        assert asdict(found[key]) == {
            name: pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
            for name, value in asdict(cost).items()
        }, key


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        pytest.param(
            MIDNIGHT - timedelta(minutes=40),
            MIDNIGHT - timedelta(minutes=10, seconds=10),
            marks=pytest.mark.night,
        ),
        (MIDNIGHT - timedelta(minutes=20), MIDNIGHT + timedelta(minutes=20)),
        pytest.param(
            MIDNIGHT + timedelta(minutes=70), MIDNIGHT + timedelta(minutes=110), marks=pytest.mark.night
        ),
        (BEGIN, MIDNIGHT + timedelta(minutes=59, seconds=50)),  # from the tables of minutes
    ],
    ids=["before", "both days", "restarts", "minutes"],
)
def test_costs_are_those_of_a_recount(fleet: Database, begin: datetime, end: datetime) -> None:
    wanted = costs(inputs(fleet.made, begin, end))
    assert {cost.rate_basis for cost in wanted.values()} == {"measured", "assumed", "unknown"}
    assert {key.cause for key in wanted} == {"gpu", "lower_tier", "at_receivers", *CAUSES[1:]}
    assert_equal(fleet.view(begin, end), wanted)
    for step in (60, 3600, 86400):
        assert_equal(fleet.view(begin, end, step), wanted)


def test_rates_are_those_of_the_days(fleet: Database) -> None:
    rows = fleet.client.query(
        f"SELECT * FROM {fleet.settings.clickhouse.database}.prefill_rates("
        f"from = '{MIDNIGHT + timedelta(hours=1):%F %T}', to = '{MIDNIGHT + timedelta(hours=2):%F %T}')"
    ).named_results()
    found = {row["replica"]: row for row in rows}
    assert len(found) == 12
    assert [found[f"priced-{number}"]["rate_basis"] for number in range(4)] == ["measured"] * 3 + ["unknown"]
    assert [found[f"timed-{number}"]["rate_basis"] for number in range(4)] == ["measured"] * 3 + ["assumed"]
    assert {found[f"bare-{number}"]["rate_basis"] for number in range(4)} == {"unknown"}
    assert found["timed-3"]["gpu_seconds_per_token"] == 8 / 1000
    assert (found["priced-1"]["gpu_hour_price"], found["priced-1"]["currency"]) == (4.5, "EUR")
    assert (found["priced-1"]["dp_ranks"], found["priced-1"]["tenant"]) == (2, "tenant-1")
    lost = next(
        cost
        for key, cost in fleet.view(
            MIDNIGHT + timedelta(hours=1), MIDNIGHT + timedelta(hours=1, minutes=20)
        ).items()
        if key.replica == "priced-1" and key.cause == "peer"
    )
    assert lost.gpu_seconds == pytest.approx(lost.tokens * found["priced-1"]["gpu_seconds_per_token"])


@pytest.mark.night
def test_verify_compares_the_last_half_hours_and_names_what_differs(fleet: Database) -> None:
    def checked() -> Findings:
        findings, tables = Findings(), StoredTables(fleet.settings.clickhouse)
        check_money(tables, findings, oldest=BEGIN, now=datetime.now(timezone.utc), patience=0.0)
        tables.close()
        return findings

    findings = checked()
    assert findings.equal, findings.kept[:3]
    assert findings.compared[VIEW] > 4 * 4 * len(CAUSES)
    # What the view reads says another thing than the scrapes behind it.
    database = fleet.settings.clickhouse.database
    fleet.client.command(
        f"INSERT INTO {database}.prefill_counters_by_hour SELECT window, model, replica, dp_rank, first, "
        f"(last.1, last.2 * 2, last.3) FROM {database}.prefill_counters_by_hour FINAL "
        f"WHERE replica = 'priced-0' AND window = '{MIDNIGHT + timedelta(hours=1):%F %T}'"
    )
    lied = checked()
    assert lied.verdict == "different"
    assert {(one.table, one.key["replica"]) for one in lied.kept} == {(VIEW, "priced-0")}
    assert {column for one in lied.kept for column in one.expected} == {"gpu_seconds", "cost"}
