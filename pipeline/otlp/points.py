"""The fleet's gauges in OTLP's data model (opentelemetry-proto, metrics/v1). No IO."""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry.sdk.metrics.export import (
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Metric as Family

from schemas.fleet_metrics import Fleet
from schemas.metric_kinds import Figure
from schemas.metrics import metrics_of

_NANOSECONDS = 1_000_000_000
_FIGURES = {
    metric.name: metric
    for metric in metrics_of(Fleet)
    # The end of the range is the time of each point.
    if isinstance(metric, Figure) and metric is not Fleet.range_end
}


def range_end(families: Iterable[Family]) -> float | None:
    """Return the end of the range that the figures cover, in seconds; None if there are none."""
    ends = (family.samples[0].value for family in families if family.name == Fleet.range_end.name)
    return next(ends, None)


def metrics_data(families: Iterable[Family], resource: Resource) -> MetricsData:
    """Return a point for each sample, timed at the end of the range.

    Raises ValueError for families without a range. Labels without a value do not become attributes.
    """
    families = [*families]
    end = range_end(families)
    if end is None:
        raise ValueError("figures without a range")
    at = int(end * _NANOSECONDS)
    metrics = [_metric(_FIGURES[family.name], family, at) for family in families if family.name in _FIGURES]
    scope = ScopeMetrics(InstrumentationScope("kvlens"), metrics, schema_url="")
    return MetricsData([ResourceMetrics(resource, [scope], schema_url="")])


def _metric(figure: Figure, family: Family, at: int) -> Metric:
    names = dict(zip(figure.labels, figure.attributes, strict=True))
    points = [
        NumberDataPoint(
            {names[label]: value for label, value in sample.labels.items() if value},
            start_time_unix_nano=0,  # the encoder drops that of a gauge
            time_unix_nano=at,
            value=sample.value,
        )
        for sample in family.samples
    ]
    return Metric(figure.otlp_name, figure.meaning, figure.unit, Gauge(points))
