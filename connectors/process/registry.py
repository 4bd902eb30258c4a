"""The metrics of `schemas.metrics` in a registry of prometheus_client."""

from __future__ import annotations

import prometheus_client

from schemas import metric_kinds


class Registry(prometheus_client.CollectorRegistry):
    """Metrics of one process. A metric is made once."""

    def counter(self, metric: metric_kinds.Counter) -> prometheus_client.Counter:
        return prometheus_client.Counter(metric.name, metric.meaning, metric.labels, registry=self)

    def gauge(self, metric: metric_kinds.Gauge) -> prometheus_client.Gauge:
        return prometheus_client.Gauge(metric.name, metric.meaning, metric.labels, registry=self)

    def histogram(self, metric: metric_kinds.Histogram) -> prometheus_client.Histogram:
        return prometheus_client.Histogram(
            metric.name, metric.meaning, metric.labels, buckets=metric.buckets, registry=self
        )
