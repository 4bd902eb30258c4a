"""The worker's pages over HTTP."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import ClientSession
from prometheus_client import generate_latest

from connectors.process.health_pages import HealthPages
from pipeline.worker.telemetry import WorkerMetrics


async def test_pages_tell_health_and_metrics(free_port: Callable[[], int]) -> None:
    metrics, port = WorkerMetrics(), free_port()
    unready: list[str | None] = ["waiting for partitions"]
    metrics.records.labels("replica", "3").inc(7)
    pages = HealthPages(
        "127.0.0.1",
        port,
        setting="worker.metrics_port",
        registry=metrics.registry,
        unready=lambda: unready[0],
    )
    await pages.start()
    try:
        async with ClientSession(f"http://127.0.0.1:{port}") as client:
            assert (await client.get("/livez")).status == 200
            answer = await client.get("/readyz")
            assert (answer.status, await answer.text()) == (503, "waiting for partitions\n")
            unready[0] = None
            assert (await client.get("/readyz")).status == 200
            text = await (await client.get("/metrics")).text()
    finally:
        await pages.stop()
    assert 'kvlens_worker_records_total{agent="replica",partition="3"} 7.0' in text.splitlines()


def test_what_another_worker_may_own_now_is_exported_no_more() -> None:
    metrics = WorkerMetrics()
    for gauge in (metrics.sources, metrics.lag, metrics.next_offset):
        gauge.labels("replica", "3").set(7)
    metrics.given_up("replica", 3)
    assert b'partition="3"' not in generate_latest(metrics.registry)
