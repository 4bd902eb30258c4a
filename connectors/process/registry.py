"""The metrics of `schemas.metrics` in a registry of prometheus_client."""

from __future__ import annotations

import prometheus_client

from schemas import metrics


class Registry(prometheus_client.CollectorRegistry):
    """Metrics of one process. A metric is made once."""

    def counter(self, metric: metrics.Counter) -> prometheus_client.Counter:
        return prometheus_client.Counter(metric.name, metric.meaning, metric.labels, registry=self)

    def gauge(self, metric: metrics.Gauge) -> prometheus_client.Gauge:
        return prometheus_client.Gauge(metric.name, metric.meaning, metric.labels, registry=self)

    def histogram(self, metric: metrics.Histogram) -> prometheus_client.Histogram:
        return prometheus_client.Histogram(
            metric.name, metric.meaning, metric.labels, buckets=metric.buckets, registry=self
        )
