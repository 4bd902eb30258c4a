"""What an index counts."""

from __future__ import annotations

from connectors.process.login_files import RENEWED, UNUSABLE
from connectors.process.registry import Registry
from schemas.metrics import Index


class IndexMetrics:
    """Every metric of an index, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = Registry()
        for counter in (RENEWED, UNUSABLE):
            registry.register(counter)
        self.requests = registry.counter(Index.requests)
        self.prompts = registry.counter(Index.prompts)
        self.refused = registry.counter(Index.refused)
        self.choices = registry.counter(Index.choices)
        self.choices_unacknowledged = registry.counter(Index.choices_unacknowledged)
        self.answer_seconds = registry.histogram(Index.answer_seconds)
        self.records = registry.counter(Index.records)
        self.set_aside = registry.counter(Index.set_aside)
        self.lost = registry.counter(Index.lost)
        self.age = registry.gauge(Index.age)
        self.lag = registry.gauge(Index.lag)
        self.sources = registry.gauge(Index.sources)
        self.blocks = registry.gauge(Index.blocks)
        self.table_bytes = registry.gauge(Index.table_bytes)
        self.ready_seconds = registry.gauge(Index.ready_seconds)
