"""What a worker counts."""

from __future__ import annotations

from connectors.process.login_files import RENEWED, UNUSABLE
from connectors.process.registry import Registry
from schemas.metrics import Worker


class WorkerMetrics:
    """Every metric of a worker, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = Registry()
        for counter in (RENEWED, UNUSABLE):
            registry.register(counter)
        self.records = registry.counter(Worker.records)
        self.skipped = registry.counter(Worker.skipped)
        self.set_aside = registry.counter(Worker.set_aside)
        self.left_out = registry.counter(Worker.left_out)
        self.without_content = registry.counter(Worker.without_content)
        self.gave_up_repeats = registry.counter(Worker.gave_up_repeats)
        self.out_of_order = registry.counter(Worker.out_of_order)
        self.lost = registry.counter(Worker.lost)
        self.next_offset = registry.gauge(Worker.next_offset)
        self.lag = registry.gauge(Worker.lag)
        self.sources = registry.gauge(Worker.sources)
        self.forgotten = registry.counter(Worker.forgotten)
        self.troubled = registry.gauge(Worker.troubled)
        self.partitions = registry.gauge(Worker.partitions)
        self.topic_partitions = registry.gauge(Worker.topic_partitions)
        self.rebalances = registry.counter(Worker.rebalances)
        self.checkpoints = registry.counter(Worker.checkpoints)
        self.checkpoint_seconds = registry.histogram(Worker.checkpoint_seconds)
        self.checkpoint_timestamp = registry.gauge(Worker.checkpoint_timestamp)
        self.holding = registry.gauge(Worker.holding)
        self.rows = registry.counter(Worker.rows)
        self.figures = registry.counter(Worker.figures)
        self.store_failures = registry.counter(Worker.store_failures)
        self.rollup_periods = registry.counter(Worker.rollup_periods)
        self.rollup_seconds = registry.histogram(Worker.rollup_seconds)

    def given_up(self, agent: str, partition: int) -> None:
        """Remove the gauges of a partition that another worker may own now."""
        for gauge in (self.sources, self.troubled, self.lag, self.next_offset):
            gauge.remove_by_labels({"agent": agent, "partition": str(partition)})
