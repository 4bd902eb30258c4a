"""Figures through a real OpenTelemetry collector: what comes out of it, and on its page for Prometheus."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from connectors.process.registry import Registry
from pipeline.local.processes.child_process import ChildProcess
from pipeline.otlp.push import TIMEOUT_SECONDS, Push
from schemas.fleet_metrics import Fleet
from schemas.metric_kinds import Figure
from schemas.metrics import Otlp, metrics_of
from tests.fleet.real_parts import COLLECTOR, PartsMissing, programs
from tests.support.otlp_receiver import PATH, Receiver, receiver
from tests.support.patience import PATIENCE

FIGURES = [
    metric for metric in metrics_of(Fleet) if isinstance(metric, Figure) and metric is not Fleet.range_end
]
END = time.time() // 60 * 60 - 60
START_SECONDS = 60.0


class Collector(NamedTuple):
    """Where it takes figures, where it shows them to Prometheus, and who gets them behind it."""

    url: str
    page: str
    behind: Receiver


@pytest.fixture(scope="module")
def otelcol() -> Path:
    try:
        return programs(COLLECTOR)["otelcol"]
    except PartsMissing as error:
        pytest.skip(f"no OpenTelemetry collector was tried: {error}")


@pytest.fixture
def collector(otelcol: Path, free_port: Callable[[], int], tmp_path: Path) -> Iterator[Collector]:
    taking, showing = free_port(), free_port()
    process = ChildProcess("collector", tmp_path / "collector", tmp_path / "collector.log")
    with receiver() as behind:
        lent = Collector(f"http://127.0.0.1:{taking}{PATH}", f"http://127.0.0.1:{showing}/metrics", behind)
        file = tmp_path / "collector.yaml"
        file.write_text(json.dumps(configuration(taking, showing, behind)))
        process.claim()
        process.spawn([str(otelcol), "--config", str(file)])
        process.wait_ready(lambda: answers(lent.page), START_SECONDS, "see its log")
        yield lent
        process.kill()


def configuration(taking: int, showing: int, behind: Receiver) -> dict[str, object]:
    """YAML holds JSON. Without a queue the sender hears what the one behind answers."""
    passed_on = {
        "endpoint": behind.url.removesuffix(PATH),
        "compression": "none",
        "sending_queue": {"enabled": False},
        "retry_on_failure": {"enabled": False},
    }
    return {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{taking}"}}}},
        "exporters": {
            "otlp_http": passed_on,
            "prometheus": {"endpoint": f"127.0.0.1:{showing}", "send_timestamps": True},
        },
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"metrics": {"receivers": ["otlp"], "exporters": ["otlp_http", "prometheus"]}},
        },
    }


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return str(answer.read(), "utf-8")


def answers(url: str) -> bool:
    try:
        read(url)
    except OSError:  # urllib's errors are such
        return False
    return True


async def figures() -> Registry:
    """Return a sample of each figure, with a value of its own."""
    registry = Registry()
    registry.gauge(Fleet.range_end).set(END)
    for value, figure in enumerate(FIGURES):
        gauge = registry.gauge(figure)
        labelled = gauge.labels(*(f"{label}-1" for label in figure.labels)) if figure.labels else gauge
        labelled.set(value + 0.5)
    return registry


def pushed(url: str, timeout: float = PATIENCE) -> tuple[Push, Callable[[], dict[str, float]]]:
    """Return a push, and a function that counts what became of it."""
    registry = Registry()

    def outcomes() -> dict[str, float]:
        return {
            sample.labels["outcome"]: sample.value
            for family in registry.collect()
            for sample in family.samples
            if sample.name == Otlp.exports.name
        }

    return Push(url, figures, registry, instance="worker-1", timeout=timeout), outcomes


@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_every_figure_comes_out_as_it_went_in(
    compression: str, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
    push, outcomes = pushed(collector.url)
    await push.look()
    assert outcomes() == {"accepted": 1}
    assert collector.behind.points() == {
        (
            figure.otlp_name,
            frozenset(
                (name, f"{label}-1") for label, name in zip(figure.labels, figure.attributes, strict=True)
            ),
        ): (value + 0.5, int(END) * 10**9)
        for value, figure in enumerate(FIGURES)
    }
    assert collector.behind.units() == {figure.otlp_name: figure.unit for figure in FIGURES}
    resource = collector.behind.resource()
    assert (resource["service.name"], resource["service.instance.id"]) == ("kvlens", "worker-1")


async def test_prometheus_behind_a_collector_sees_each_figure(collector: Collector) -> None:
    push, _ = pushed(collector.url)
    await push.look()
    page = await asyncio.to_thread(read, collector.page)
    families = [*text_string_to_metric_families(page)]
    shown = {family.name: family.samples[0] for family in families if family.name.startswith("kvlens_")}
    assert {name: (sample.value, sample.timestamp) for name, sample in shown.items()} == {
        figure.name: (value + 0.5, END) for value, figure in enumerate(FIGURES)
    }
    for figure in FIGURES:
        names = zip(figure.labels, figure.attributes, strict=True)
        labels = {name.replace(".", "_"): f"{label}-1" for label, name in names}
        of_resource = {"job": "kvlens", "instance": "worker-1"}
        assert shown[figure.name].labels.items() >= {**labels, **of_resource}.items()


@pytest.mark.parametrize(("status", "again"), [(503, True), (429, True), (400, False), (401, False)])
async def test_what_the_one_behind_refuses_is_sent_again_if_it_may_be(
    status: int, again: bool, collector: Collector
) -> None:
    push, outcomes = pushed(collector.url, TIMEOUT_SECONDS)
    collector.behind.status = status
    await push.look()
    collector.behind.status = 200
    await push.look()
    assert outcomes() == ({"refused": 1, "accepted": 1} if again else {"refused": 1})
