"""docs/metrics.md: what the processes tell Prometheus about themselves."""

from __future__ import annotations

from pathlib import Path

from pipeline.generated.markdown import code, page, table
from pipeline.generated.metric_definitions import Metric, metrics_in

ROOT = Path(__file__).parents[2]

PROCESSES = {
    "Connector": ("connectors/telemetry.py", "`kvlens connect`, on `connector.metrics_port`."),
    "Worker": ("pipeline/telemetry.py", "`kvlens work`, on `worker.metrics_port`."),
}
"""Title -> where its metrics are defined, and what exposes them."""

INTRODUCTION = """\
Both processes serve Prometheus metrics at `/metrics` when their `metrics_port` is not 0, beside `/livez` (the
process turns) and `/readyz` (it does its job). Labels are bounded by the configuration: never a block hash, a
request or a session.

These tell how kvlens itself fares. What it measures of the engines is in the [tables](tables.md)."""


def catalogues() -> dict[str, list[Metric]]:
    """Return {title: metrics}."""
    return {title: metrics_in((ROOT / path).read_text("utf-8")) for title, (path, _) in PROCESSES.items()}


def metrics_page() -> bytes:
    """Return the page."""
    blocks = [INTRODUCTION]
    for title, metrics in catalogues().items():
        rows = (
            (code(metric.name), metric.kind, ", ".join(map(code, metric.labels)), metric.meaning)
            for metric in metrics
        )
        blocks += [f"## {title}", PROCESSES[title][1], table(("Metric", "Type", "Labels", "Meaning"), rows)]
    sources = " and ".join(code(path) for path, _ in PROCESSES.values())
    return page("Metrics", sources, *blocks)
