"""The fleet's figures for Prometheus: equal to the tables, with bounded labels, and never silently old."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import aiohttp
import msgspec
import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipeline.dashboards.fleet_metrics import collection
from pipeline.dashboards.fleet_metrics.collection import RANGE_SECONDS, FleetMetrics
from pipeline.dashboards.fleet_metrics.families import ADVICE, FAMILIES
from pipeline.dashboards.fleet_metrics.folding import kept_models, kept_replicas, summed
from pipeline.dashboards.page.answers import Answer, Answers
from pipeline.dashboards.page.findings import Findings
from pipeline.dashboards.page.question import Question
from pipeline.dashboards.page.server import Page
from pipeline.errors import StoreUnavailable
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.worker.fleet_figures import fleet_figures
from pipeline.worker.sink.recent import RecentRows
from schemas import metric_kinds, metrics
from schemas.fleet_metrics import Fleet
from schemas.fleet_rows import FillsRow
from schemas.rows import OccupancyRow, SourceRow, StreamHealthRow
from schemas.settings import ClickHouse, Settings
from tests.support.inputs.board_rows import (
    HOUR,
    PANEL_SECONDS,
    hour_of_rows,
    migrated,
    runner,
    window_rows,
    write_rows,
)
from tests.support.suite.night import at_night

NEWEST = HOUR + timedelta(minutes=59, seconds=50)
RANGE_END = HOUR + timedelta(minutes=59)
"""The newest window is 59:50, so 59:20 is past and the minute before it has settled."""
Samples = dict[tuple[str, ...], float]
"""Values by name and labels, those in the order of the catalogue."""


def collected(settings: Settings, after: timedelta = timedelta(seconds=70)) -> Samples:
    """Return a page made so long after the newest window began."""

    async def made() -> bytes:
        answers = Answers(settings.clickhouse, PANEL_SECONDS)
        try:
            figures = FleetMetrics(answers, lambda: (NEWEST + after).timestamp()).figures()
            return prometheus_client.generate_latest(await figures)
        finally:
            answers.close()

    return parsed(asyncio.run(made()).decode())


def parsed(page: str) -> Samples:
    order = {metric.name: metric.labels for metric in metrics.metrics_of(Fleet)}
    return {
        (sample.name, *(sample.labels[label] for label in order[sample.name])): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def of(samples: Samples, metric: metric_kinds.Metric) -> Samples:
    return {tuple(labels): value for (name, *labels), value in samples.items() if name == metric.name}


@pytest.fixture(scope="module")
def settings(hour: Settings) -> Settings:
    return hour


@pytest.fixture(scope="module")
def samples(settings: Settings) -> Samples:
    return collected(settings)


def test_figures_are_those_of_the_rows(samples: Samples) -> None:
    fleet = Fleet
    assert of(samples, fleet.filled) == {
        ("m", cause): rate
        for cause, rate in {
            **dict.fromkeys(
                (
                    *("promoted", "transferred", "generated", "at_receivers", "peer_and_evicted"),
                    *("evicted_elsewhere", "unknown"),
                ),
                0.0,
            ),
            "peer": 12.0,
            "evicted": 4.0,
            "cleared": 2.0,
            "cold": 2.0,
        }.items()
    }
    assert of(samples, fleet.streams) == {("m", "complete"): 1, ("m", "degraded"): 1}
    assert of(samples, fleet.replica_avoidable) == {
        ("m", "a", "decode"): 9.0,
        ("m", "b", ""): 9.0,
    }
    assert of(samples, fleet.cached) == {("m", "gpu"): 1280, ("m", "cpu"): 320}
    assert of(samples, fleet.gpu_blocks) == {("m",): 100}
    assert of(samples, fleet.gpu_capacity) == {("m",): 200}
    assert of(samples, fleet.hit_ratio) == {
        ("m", kind): pytest.approx(ratio)
        for kind, ratio in (("actual", 0.9), ("own_ideal", 0.93), ("ideal", 0.99))
    }
    # 1/16 GPU-seconds a token: 18 lost and 180 found a second, at 3.6 EUR an hour.
    gpus = of(samples, fleet.gpus)
    assert gpus["m", "lost", "peer", "measured"] == 0.75
    assert gpus["m", "lost", "evicted", "measured"] == 0.25
    assert gpus["m", "lost", "cleared", "measured"] == 0.125
    assert gpus["m", "saved", "gpu", "measured"] == pytest.approx(180 / 16)
    assert set(gpus) == {("m", *labels, "measured") for labels in (
        ("lost", "peer"), ("lost", "evicted"), ("lost", "cleared"), ("saved", "gpu")
    )}  # fmt: skip
    costs = of(samples, fleet.cost)
    assert costs["m", "lost", "peer", "measured", "EUR"] == pytest.approx(0.75 * 3.6)
    assert of(samples, fleet.without_rate) == {("m", "lost"): 0, ("m", "saved"): 0}


def test_figures_equal_those_of_the_views(settings: Settings, samples: Samples, store: EmbeddedStore) -> None:
    run = runner(store, settings)
    begin, end = RANGE_END - timedelta(minutes=5), RANGE_END - timedelta(seconds=10)
    bounds = f"(from = '{begin:%F %T}', to = '{end:%F %T}')"
    sums = "sum(avoidable_tokens), sum(filled_tokens), sum(prefill_tokens)"
    (row,) = run("view", f"SELECT {sums} FROM hit_potential{bounds}").result_rows
    filled = of(samples, Fleet.filled)
    avoidable = ("peer", "at_receivers", "peer_and_evicted", "evicted", "evicted_elsewhere", "cleared")
    assert sum(filled["m", cause] for cause in avoidable) * RANGE_SECONDS == row[0]
    assert sum(filled.values()) * RANGE_SECONDS == row[1]
    none = ("promoted", "transferred", "generated")
    prefill = (rate for (_, cause), rate in filled.items() if cause not in none)
    assert sum(prefill) * RANGE_SECONDS == row[2]
    (row,) = run("view", f"SELECT sum(gpu_seconds), sum(cost) FROM prefill_costs{bounds}").result_rows
    assert sum(of(samples, Fleet.gpus).values()) * RANGE_SECONDS == pytest.approx(row[0])
    assert sum(of(samples, Fleet.cost).values()) / 12 == pytest.approx(row[1])


def several_groups(number: int) -> list[Any]:
    """Return the rows of a window of engines in which groups, sizes of blocks and causes differ."""
    at = HOUR + timedelta(seconds=10 * number)
    occupancy, fills = (
        next(row for row in window_rows(number, "a") if isinstance(row, kind))
        for kind in (OccupancyRow, FillsRow)
    )
    sizes: list[dict[str, Any]] = [
        # Two groups that hold the same tokens, more of them than there is room for; and smaller blocks.
        {"entries": 120, "tokens": 1920},
        {"entries": 90, "tokens": 1440, "group_idx": 1},
        {"entries": 30, "tokens": 120, "block_size": 4, "capacity_blocks": 0},
        {"medium": "cpu", "tokens": 320, "capacity_blocks": 0},
        {"medium": "cpu", "tokens": 352, "capacity_blocks": 0, "group_idx": 1},
        # Of blocks of no size there are some of a group on the GPU, and some of none.
        {"medium": "disk", "tokens": 0, "block_size": 0, "capacity_blocks": 0},
        {"medium": "tier", "tokens": 0, "block_size": 0, "capacity_blocks": 0, "group_idx": 7},
        {"replica": "b", "tokens": 480},
        {"replica": "b", "medium": "disk", "tokens": 64, "capacity_blocks": 0},
        {"replica": "b", "medium": "another", "tokens": 48, "capacity_blocks": 0},
    ]
    if number < 350:
        sizes.append({"replica": "b", "tokens": 9999, "entries": 999, "group_idx": 1})
    causes: list[dict[str, Any]] = [
        {"filled_tokens": 100, "peer_at_receivers_tokens": 14},
        {
            "filled_tokens": 160,
            "group_idx": 1,
            "evicted_elsewhere_tokens": 60,
            "evicted_at_receivers_tokens": 9,
        },
        {"filled_tokens": 30, "peer_at_receivers_tokens": 5, "replica": "b"},
    ]
    return [
        *(msgspec.structs.replace(occupancy, window=at, **columns) for columns in sizes),
        *(msgspec.structs.replace(fills, window=at, **columns) for columns in causes),
        *(row for row in window_rows(number, "a") if isinstance(row, StreamHealthRow)),
    ]


def test_a_worker_without_tables_has_the_figures_of_the_views(
    own: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row for number in range(300, 360) for row in several_groups(number)]
    write_rows(own, rows)
    recent = RecentRows()
    recent.add(rows)
    alone = parsed(prometheus_client.generate_latest(fleet_figures([recent])).decode())
    # A worker gives no advice, which is dear.
    monkeypatch.setattr(collection, "FAMILIES", [each for each in FAMILIES if each is not ADVICE])
    from_tables = collected(own)
    fleet = Fleet
    for figure in (fleet.filled, fleet.cached, fleet.gpu_blocks, fleet.gpu_capacity, fleet.streams):
        assert of(alone, figure) == of(from_tables, figure), figure.name
    occupied = next(row.blocks for row in rows if row.medium == "disk")
    assert of(alone, fleet.cached) == {
        ("m", "gpu"): 1600 + 480,
        ("m", "cpu"): 352,
        ("m", "disk"): 64 + 16 * occupied,
        ("m", "other"): 48,
    }
    assert of(alone, fleet.filled)["m", "at_receivers"] == (9 + 5) / 10
    assert of(alone, fleet.range_end) == of(from_tables, fleet.range_end)


def test_advice_is_that_of_the_view_seven_findings_at_most(
    settings: Settings, samples: Samples, store: EmbeddedStore
) -> None:
    tokens, gpus = of(samples, Fleet.advice), of(samples, Fleet.advice_gpus)
    # 12 tokens a second are on a peer, 4 were evicted; 1/16 GPU-second a token.
    assert tokens["m", "routing"] == pytest.approx(12 * 3600)
    assert tokens["m", "capacity"] == pytest.approx(4 * 3600)
    assert gpus["m", "routing", "measured"] == pytest.approx(12 * 3600 / 16)
    begin, end = RANGE_END - timedelta(minutes=5), RANGE_END - timedelta(seconds=1)
    rows = runner(store, settings)(
        "view",
        "SELECT model, kind, rate_basis, tokens_per_hour, gpu_seconds_per_hour "
        f"FROM advice(from = '{begin:%F %T}', to = '{end:%F %T}')",
    ).result_rows
    assert len(rows) <= 7
    assert tokens == {row[:2]: pytest.approx(row[3]) for row in rows}
    assert gpus == {row[:3]: pytest.approx(row[4]) for row in rows}


def test_findings_of_a_kind_are_added_up_and_what_has_no_rate_has_no_gpu_seconds() -> None:
    gauges = collection._Gauges()
    rows = [
        ("m", "capacity", "measured", 100.0, 10.0),
        ("m", "capacity", "unknown", 50.0, None),
        ("n", "capacity", "assumed", 7.0, 1.0),
        ("o", "streams", "unknown", 3.0, None),
    ]
    kept = kept_models([("m", 3), ("n", 1), ("o", 1)], 1)
    collection._advice(gauges, summed(rows, collection.ADVICE.labels, kept))
    found = parsed(prometheus_client.generate_latest(gauges.registry).decode())
    assert of(found, Fleet.advice) == {
        ("m", "capacity"): 150,
        ("others", "capacity"): 7,
        ("others", "streams"): 3,
    }
    assert of(found, Fleet.advice_gpus) == {
        ("m", "capacity", "measured"): 10,
        ("others", "capacity", "assumed"): 1,
    }


@pytest.mark.parametrize("answered", at_night([True, False]))
async def test_advice_is_asked_for_once_a_minute_also_where_it_fails(
    settings: Settings, answered: bool
) -> None:
    asked: list[str] = []

    class Counted(Answers):
        async def of(self, owner: str, sql: str, question: Question) -> Answer:
            asked.append(owner)
            if owner == "fleet-metrics-advice" and not answered:
                raise StoreUnavailable("a store", "it took too long")
            return await super().of(owner, sql, question)

    answers, now = Counted(settings.clickhouse, PANEL_SECONDS), NEWEST.timestamp() + 70
    pages = FleetMetrics(answers, lambda: now)
    for _ in range(6):
        told = parsed(prometheus_client.generate_latest(await pages.figures()).decode())
        now += 11
    answers.close()
    assert asked.count("fleet-metrics-costs") == 6
    assert asked.count("fleet-metrics-advice") == 1
    assert of(told, Fleet.answered)["advice",] == answered
    now += 1
    await pages.figures()
    assert asked.count("fleet-metrics-advice") == 2


def test_the_range_and_its_age_are_told(samples: Samples) -> None:
    assert of(samples, Fleet.range_end) == {(): RANGE_END.timestamp()}
    assert of(samples, Fleet.range_length) == {(): 300}
    assert of(samples, Fleet.newest) == {("m",): NEWEST.timestamp()}
    assert set(of(samples, Fleet.answered).values()) == {1}
    assert of(samples, Fleet.folded) == {("model",): 0, ("replica",): 0}


def test_all_metrics_of_the_catalogue_are_there(samples: Samples) -> None:
    assert {name for name, *_ in samples} == {metric.name for metric in metrics.metrics_of(Fleet)}


@pytest.mark.night
def test_old_figures_keep_their_age_and_older_ones_are_not_told(settings: Settings) -> None:
    late = collected(settings, timedelta(minutes=30))
    assert of(late, Fleet.range_end) == {(): RANGE_END.timestamp()}
    assert of(late, Fleet.filled)["m", "peer"] == 12.0
    assert collected(settings, timedelta(minutes=61)) == {("kvlens_fleet_folded_series", "model"): 0}


@pytest.mark.night
def test_what_is_not_answered_is_missing_and_said_to_be(store: EmbeddedStore) -> None:
    settings = migrated(store)
    write_rows(settings, hour_of_rows())
    runner(store, settings)("view", "DROP VIEW prefill_costs")
    found = collected(settings)
    answered = of(found, Fleet.answered)
    assert answered == {**dict.fromkeys(answered, 1.0), ("costs",): 0}
    assert not of(found, Fleet.gpus)
    assert of(found, Fleet.filled)["m", "peer"] == 12.0


@pytest.mark.night
def test_models_and_replicas_beyond_the_bounds_are_added_up(
    own: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "MOST_MODELS", 2)
    monkeypatch.setattr(collection, "MOST_REPLICAS", 3)
    rows: list[Any] = []
    # Of model-2 there are two replicas, of the others one; replicas lose the more, the later they come.
    sources = [("model-0", "a"), ("model-1", "b"), ("model-2", "c"), ("model-2", "d"), ("model-3", "e")]
    for place, (model, replica) in enumerate(sources):
        for number in range(320, 360):
            for row in window_rows(number, "a"):
                changed: dict[str, Any] = {"model": model, "replica": replica}
                if isinstance(row, FillsRow):
                    changed |= {"hash_domain": model, "peer_tokens": 10 * place}
                if isinstance(row, OccupancyRow) and row.medium == "cpu":
                    changed["medium"] = f"tier-{place}"
                rows.append(msgspec.structs.replace(row, **changed))
        life = (HOUR, None, "", "vllm", "map", model, "t", "", 0, 9, [], "complete", HOUR, 1)
        rows.append(SourceRow(model, replica, 0, 7, *life))
    write_rows(own, rows)
    found = collected(own)
    assert of(found, Fleet.folded) == {("model",): 2, ("replica",): 2}
    prefill = of(found, Fleet.filled)
    assert {model: prefill[model, "peer"] for model in ("model-0", "model-2", "others")} == {
        "model-0": 0.0,
        "model-2": 5.0,
        "others": 1.0 + 4.0,
    }
    assert {model for model, _ in prefill} == {"model-0", "model-2", "others"}
    assert of(found, Fleet.replica_avoidable) == {
        ("others", "e", ""): 7.0,
        ("model-2", "d", ""): 6.0,
        ("model-2", "c", ""): 5.0,
        ("others", "others", ""): 4.0,
        ("model-0", "others", ""): 3.0,
    }
    assert {medium for _, medium in of(found, Fleet.cached)} == {"gpu", "other"}
    assert of(found, Fleet.gpu_capacity) == {("model-0",): 100, ("model-2",): 200, ("others",): 200}
    # Without a rate or a price there is no figure, and it is said how many tokens have none.
    assert not of(found, Fleet.gpus)
    assert of(found, Fleet.without_rate)["model-2", "lost"] == 11.0


async def nothing() -> dict[str, Any]:
    return {}


def test_sums_do_not_take_what_is_unknown_for_nothing() -> None:
    rows = [("m", "x", 1, None), ("n", "x", 2, None), ("o", "x", 3, 4)]
    kept = kept_models([("m", 3), ("n", 1), ("o", 1)], 1)
    assert summed(rows, 2, kept) == {("m", "x"): [1, None], ("others", "x"): [5, 4]}
    assert kept_replicas(
        {("m", "a", "both"): [1.0], ("m", "b", "decode"): [2.0], ("m", "c", ""): [None]}, 1
    ) == {("m", "b", "decode"): [2.0], ("m", "others", ""): [1.0]}


async def test_the_page_is_served_and_made_once_in_a_while(
    settings: Settings, free_port: Callable[[], int]
) -> None:
    page = Page(
        Answers(settings.clickhouse, PANEL_SECONDS), "127.0.0.1", free_port(), findings=Findings(nothing)
    )
    await page.start()
    try:
        async with (
            aiohttp.ClientSession() as client,
            client.get(f"{page.url}fleet/metrics") as answer,
            client.get(f"{page.url}fleet/metrics") as again,
        ):
            assert answer.status == 200
            assert answer.headers["Content-Type"].startswith("text/plain; version=")
            text = await answer.text()
            assert "# TYPE kvlens_fleet_folded_series gauge" in text
            assert await again.text() == text
    finally:
        await page.stop()


async def test_where_the_page_needs_a_login_the_token_lets_prometheus_in(
    settings: Settings, free_port: Callable[[], int]
) -> None:
    token = "a token of some length"
    page = Page(
        Answers(settings.clickhouse, PANEL_SECONDS),
        "127.0.0.1",
        free_port(),
        findings=Findings(nothing),
        token=token,
    )
    await page.start()
    try:
        async with aiohttp.ClientSession() as client:
            for sent, status in (("", 401), ("Bearer another", 401), (f"Bearer {token}", 200)):
                async with client.get(f"{page.url}fleet/metrics", headers={"Authorization": sent}) as answer:
                    assert answer.status == status
    finally:
        await page.stop()


async def test_without_a_store_the_page_is_an_error(free_port: Callable[[], int]) -> None:
    dead = ClickHouse(url=f"http://127.0.0.1:{free_port()}")
    page = Page(Answers(dead, PANEL_SECONDS), "127.0.0.1", free_port(), findings=Findings(nothing))
    await page.start()
    try:
        async with aiohttp.ClientSession() as client, client.get(f"{page.url}fleet/metrics") as answer:
            assert answer.status == 503
    finally:
        await page.stop()
