"""Figures on their way to a receiver: all of them, each range once, and nothing waits for what it answers."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from structlog.testing import capture_logs

from connectors.process.errors import OperatorError
from connectors.process.registry import Registry
from connectors.process.tls_files import CertificateUnreadable
from pipeline.cli.commands.serve import _serve
from pipeline.dashboards.fleet_metrics.collection import FleetMetrics
from pipeline.dashboards.page.answers import Answers
from pipeline.dashboards.page.server import PageUnavailable
from pipeline.errors import StoreUnavailable
from pipeline.otlp.push import Push
from schemas.fleet_metrics import Fleet
from schemas.metric_kinds import Figure
from schemas.metrics import Otlp, metrics_of
from schemas.settings import ClickHouse, Page, Settings
from schemas.settings import Otlp as OtlpSettings
from tests.support.inputs.board_rows import HOUR, PANEL_SECONDS
from tests.support.otlp_receiver import Receiver, receiver
from tests.support.patience import PATIENCE

SHORT = 0.4
"""Time for a receiver that never answers."""


@pytest.fixture
def taking() -> Iterator[Receiver]:
    with receiver() as lent:
        yield lent


class Pushed:
    """A push of one figure, in ranges that the test counts on."""

    def __init__(self, url: str, timeout: float = PATIENCE) -> None:
        self.range_end = 60.0
        self.registry = Registry()
        self.push = Push(url, self.figures, self.registry, timeout=timeout)

    async def figures(self) -> Registry:
        registry = Registry()
        registry.gauge(Fleet.range_end).set(self.range_end)
        registry.gauge(Fleet.range_length).set(300)
        registry.gauge(Fleet.streams).labels("m", "complete").set(2)
        return registry

    def outcomes(self) -> dict[str, float]:
        return {
            sample.labels["outcome"]: sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == Otlp.exports.name
        }


async def test_what_is_posted_is_what_the_page_tells(hour: Settings, taking: Receiver) -> None:
    answers = Answers(hour.clickhouse, PANEL_SECONDS)
    fleet = FleetMetrics(answers, lambda: HOUR.timestamp() + 3660)
    push = Push(taking.url, fleet.figures, Registry(), instance="here", timeout=PATIENCE)
    await push.look()
    told = {metric.name: metric for metric in metrics_of(Fleet) if isinstance(metric, Figure)}
    end = int(HOUR.timestamp() + 3540) * 10**9
    expected = {
        (
            told[sample.name].otlp_name,
            frozenset(
                ("gen_ai.request.model" if label == "model" else f"kvlens.{label}", value)
                for label, value in sample.labels.items()
                if value
            ),
        ): (sample.value, end)
        for family in (await fleet.figures()).collect()
        for sample in family.samples
        if not sample.name.startswith("kvlens_fleet_range_end_")
    }
    answers.close()
    assert taking.points() == expected
    assert len(expected) > 30
    assert taking.units()["kvlens.fleet.prefill_cost"] == "{currency}/h"
    assert taking.resource()["service.name"] == "kvlens"
    assert taking.resource()["service.instance.id"] == "here"
    assert taking.headers[-1]["content-type"] == "application/x-protobuf"


async def test_a_range_is_posted_once(taking: Receiver) -> None:
    pushed = Pushed(taking.url)
    for pushed.range_end in (60.0, 60.0, 120.0, 60.0):
        await pushed.push.look()
    assert len(taking.requests) == 2
    assert pushed.outcomes() == {"accepted": 2}


async def test_the_environment_names_service_and_headers(
    taking: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=caches,deployment.environment.name=test")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
    await Pushed(taking.url).push.look()
    assert taking.resource()["service.name"] == "caches"
    assert taking.resource()["deployment.environment.name"] == "test"
    assert taking.headers[-1]["authorization"] == "Bearer abc"


@pytest.mark.parametrize(("status", "again"), [(400, False), (302, False), (503, True)])
async def test_a_receiver_that_refuses_is_told_of_in_one_line(
    taking: Receiver, status: int, again: bool
) -> None:
    taking.status = status
    taking.answer_headers = {"Retry-After": "3600", "Location": taking.url}
    pushed = Pushed(taking.url)
    with capture_logs() as lines:
        for pushed.range_end in (60.0, 60.0, 120.0):
            await pushed.push.look()
        taking.status = 200
        await pushed.push.look()
        pushed.range_end = 180.0
        await pushed.push.look()
    assert pushed.outcomes() == {"refused": 3 if again else 2, "accepted": 2 if again else 1}
    assert [(line["event"], line.get("outcome")) for line in lines] == [
        ("figures did not get to the OTLP receiver", "refused"),
        ("the OTLP receiver takes figures", None),
    ]
    assert lines[0]["reason"].startswith(f"HTTP {status} ")
    assert lines[0]["address"] == taking.url


async def test_points_that_a_receiver_rejects_are_told_of(taking: Receiver) -> None:
    taking.rejected = 1
    pushed = Pushed(taking.url)
    with capture_logs() as lines:
        await pushed.push.look()
    assert pushed.outcomes() == {"in_part": 1}
    assert lines[0]["reason"] == r"1 points rejected: too\nold"


async def test_without_a_receiver_the_next_range_is_tried(free_port: Callable[[], int]) -> None:
    pushed = Pushed(f"http://127.0.0.1:{free_port()}/v1/metrics", timeout=SHORT)
    with capture_logs() as lines:
        await pushed.push.look()
        await pushed.push.look()
    assert pushed.outcomes() == {"unreachable": 2}
    assert len(lines) == 1
    assert "Connection refused" in lines[0]["reason"]


async def test_an_answer_that_never_ends_holds_up_nothing(taking: Receiver) -> None:
    taking.drips.set()
    pushed = Pushed(taking.url, timeout=SHORT)
    began = time.monotonic()
    await pushed.push.look()
    assert time.monotonic() - began < PATIENCE
    await pushed.push.look()
    assert pushed.outcomes() == {"slow": 2}
    assert len(taking.requests) == 1
    taking.drips.clear()
    while "accepted" not in pushed.outcomes():
        await pushed.push.look()
        await asyncio.sleep(0.01)
    assert len(taking.requests) == 2


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("a store", "it took too long"),
        CertificateUnreadable("clickhouse", "password_file", "a file", "it is empty"),
    ],
)
async def test_without_figures_nothing_is_posted(taking: Receiver, error: OperatorError) -> None:
    async def none() -> Registry:
        raise error

    registry = Registry()
    await Push(taking.url, none, registry).look()
    assert registry.get_sample_value(Otlp.exports.name, {"outcome": "no_figures"}) == 1
    assert not taking.requests


async def test_serve_posts_where_an_endpoint_is_set(free_port: Callable[[], int]) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    settings = Settings(
        clickhouse=ClickHouse(url=dead),
        page=Page(port=free_port()),
        otlp=OtlpSettings(endpoint=f"{dead}/v1/metrics"),
    )
    with capture_logs() as lines:
        serving = asyncio.create_task(_serve(settings, {}))
        deadline = time.monotonic() + PATIENCE
        while not any(line.get("outcome") == "no_figures" for line in lines):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving


@pytest.mark.filterwarnings("error")
async def test_serve_begins_no_push_where_the_page_cannot_listen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = Settings(
            page=Page(port=taken.getsockname()[1]),
            otlp=OtlpSettings(endpoint="http://127.0.0.1:1/v1/metrics"),
        )
        with pytest.raises(PageUnavailable):
            await _serve(settings, {})
        gc.collect()
