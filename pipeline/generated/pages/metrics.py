"""docs/metrics.md: what the processes tell Prometheus about themselves."""

from __future__ import annotations

from pipeline.generated.pages.markdown import code, page, table
from schemas.metrics import Connector, Worker, metrics_of

PROCESSES: dict[str, tuple[type[Connector] | type[Worker], str]] = {
    "Connector": (Connector, "`kvlens connect`, on `connector.metrics_port`."),
    "Worker": (Worker, "`kvlens work`, on `worker.metrics_port`."),
}
"""Title -> metrics, and what exposes them."""

INTRODUCTION = """\
Both processes serve Prometheus metrics at `/metrics` when their `metrics_port` is not 0, beside `/livez` (the
process turns) and `/readyz` (it does its job). Labels are bounded by the configuration: never a block hash, a
request or a session.

These tell how kvlens itself fares. What it measures of the engines is in the [tables](tables.md)."""


def metrics_page() -> bytes:
    """Return the page."""
    blocks = [INTRODUCTION]
    for title, (process, where) in PROCESSES.items():
        rows = (
            (code(metric.name), metric.kind, ", ".join(map(code, metric.labels)), metric.meaning)
            for metric in metrics_of(process)
        )
        blocks += [f"## {title}", where, table(("Metric", "Type", "Labels", "Meaning"), rows)]
    return page("Metrics", code("schemas/metrics.py"), *blocks)
