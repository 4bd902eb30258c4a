"""Figures on the wire, decoded with OpenTelemetry's own protobuf, against figures set by hand."""

from __future__ import annotations

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.resources import Resource

from connectors.process.registry import Registry
from pipeline.otlp.points import metrics_data, range_end
from schemas.fleet_metrics import Fleet
from schemas.metric_kinds import Figure
from schemas.metrics import metrics_of

RESOURCE = Resource({"service.name": "kvlens"})


def set_by_hand() -> Registry:
    registry = Registry()
    registry.gauge(Fleet.range_end).set(1_790_000_040)
    registry.gauge(Fleet.range_length).set(300)
    registry.gauge(Fleet.filled).labels("qwen", "evicted").set(12.5)
    avoidable = registry.gauge(Fleet.replica_avoidable)
    avoidable.labels("qwen", "vllm-0", "prefill").set(3)
    avoidable.labels("qwen", "others", "").set(4)
    registry.gauge(Fleet.advice_gpus).labels("qwen", "routing", "measured").set(7)
    return registry


def test_each_sample_is_a_point_of_the_range_with_names_of_the_conventions() -> None:
    (resource,) = encode_metrics(metrics_data(set_by_hand().collect(), RESOURCE)).resource_metrics
    assert {each.key: each.value.string_value for each in resource.resource.attributes} == {
        "service.name": "kvlens"
    }
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "kvlens"
    told = {
        (metric.name, metric.unit): {
            tuple(sorted((each.key, each.value.string_value) for each in point.attributes)): point.as_double
            for point in metric.gauge.data_points
        }
        for metric in scope.metrics
    }
    model = ("gen_ai.request.model", "qwen")
    assert told == {
        ("kvlens.fleet.range", "s"): {(): 300},
        ("kvlens.fleet.filled_tokens", "{token}/s"): {(model, ("kvlens.cause", "evicted")): 12.5},
        ("kvlens.fleet.replica_avoidable_prefill_tokens", "{token}/s"): {
            (model, ("kvlens.replica", "vllm-0"), ("kvlens.role", "prefill")): 3,
            (model, ("kvlens.replica", "others")): 4,
        },
        ("kvlens.fleet.advice_gpu", "s/h"): {
            (model, ("kvlens.kind", "routing"), ("kvlens.rate_basis", "measured")): 7
        },
    }
    times = {point.time_unix_nano for metric in scope.metrics for point in metric.gauge.data_points}
    assert times == {1_790_000_040_000_000_000}


def test_without_rows_there_is_no_range_to_tell() -> None:
    registry = Registry()
    registry.gauge(Fleet.folded).labels("model").set(0)
    assert range_end(registry.collect()) is None
    with pytest.raises(ValueError, match="without a range"):
        metrics_data(registry.collect(), RESOURCE)


def test_no_two_figures_have_one_name() -> None:
    figures = [metric for metric in metrics_of(Fleet) if isinstance(metric, Figure)]
    assert len(figures) == len(metrics_of(Fleet))
    assert len({figure.otlp_name for figure in figures}) == len(figures)
