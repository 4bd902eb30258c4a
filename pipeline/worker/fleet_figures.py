"""The fleet's figures as a worker without ClickHouse gives them: those of its own partitions."""

from __future__ import annotations

from collections.abc import Iterable

from connectors.process.registry import Registry
from pipeline.worker.sink.recent import RANGE, RecentRows, sums
from schemas.fleet_metrics import Fleet

_SECONDS = RANGE.total_seconds()


def fleet_figures(agents: Iterable[RecentRows]) -> Registry:
    """Return the gauges of `schemas.fleet_metrics.Fleet`; all but times and the range add up over workers."""
    registry = Registry()
    found = sums(agents)
    if found is None:
        return registry
    registry.gauge(Fleet.range_end).set(found.end.timestamp())
    registry.gauge(Fleet.range_length).set(_SECONDS)
    newest = registry.gauge(Fleet.newest)
    for model, window in found.newest.items():
        newest.labels(model).set(window.timestamp())
    filled = registry.gauge(Fleet.filled)
    for labels, tokens in found.filled.items():
        filled.labels(*labels).set(tokens / _SECONDS)
    for gauge, counts in ((Fleet.streams, found.streams), (Fleet.cached, found.cached)):
        made = registry.gauge(gauge)
        for labels, count in counts.items():
            made.labels(*labels).set(count)
    for gauge, blocks in ((Fleet.gpu_blocks, found.gpu_blocks), (Fleet.gpu_capacity, found.gpu_capacity)):
        made = registry.gauge(gauge)
        for model, count in blocks.items():
            made.labels(model).set(count)
    return registry
