"""Metrics on the wire: names, types and labels, which dashboards and alerts of others rest on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from connectors.order.stream import SourceStream
from connectors.process.login_files import RENEWED, UNUSABLE
from connectors.sources import Source
from connectors.telemetry.events import Telemetry
from pipeline.index.telemetry import IndexMetrics
from pipeline.worker.telemetry import WorkerMetrics
from schemas import metric_kinds, metrics
from schemas.fleet_metrics import Fleet
from schemas.settings import Connector

PROMISED = """
kvlens_connector_abandoned_messages_total counter
kvlens_connector_abandoned_records_total counter
kvlens_connector_backlog_bytes gauge
kvlens_connector_batches_total counter replica
kvlens_connector_contested_sources_total counter
kvlens_connector_description_failures_total counter reason
kvlens_connector_dns_failures_total counter
kvlens_connector_doubted_absences_total counter
kvlens_connector_duplicate_batches_total counter replica
kvlens_connector_engine_events_total counter replica
kvlens_connector_skipped_events_total counter replica
kvlens_connector_failed_additions_total counter
kvlens_connector_gaps_total counter replica,reason
kvlens_connector_hand_over_bytes gauge
kvlens_connector_inexact_positions_total counter
kvlens_connector_kubernetes_failures_total counter reason
kvlens_connector_last_batch_timestamp_seconds gauge replica
kvlens_connector_left_out_batches_total counter replica,reason
kvlens_connector_lost_batches_total counter replica
kvlens_connector_payload_bytes_total counter replica
kvlens_connector_pod_lists_total counter
kvlens_connector_position_write_failures_total counter
kvlens_connector_publish_delays_total counter
kvlens_connector_publish_failures_total counter
kvlens_connector_record_bytes_total counter
kvlens_connector_records_total counter
kvlens_connector_recovered_positions_total counter
kvlens_connector_refused_endpoints_total counter
kvlens_connector_refused_figures_total counter reason
kvlens_connector_refused_messages_total counter reason
kvlens_connector_refused_pods_total counter reason
kvlens_connector_refused_reports_total counter reason
kvlens_connector_report_records_total counter
kvlens_connector_reports_unreachable_total counter
kvlens_connector_replay_requests_total counter replica,outcome
kvlens_connector_replayed_batches_total counter replica
kvlens_connector_replica_clashes_total counter
kvlens_connector_replica_info gauge replica,role
kvlens_connector_restarts_total counter replica
kvlens_connector_scrape_failures_total counter reason
kvlens_connector_scrapes_total counter
kvlens_connector_settings_failures_total counter
kvlens_connector_skipped_counters_total counter
kvlens_connector_source_connected gauge replica
kvlens_connector_sources gauge replica
kvlens_connector_sources_added_total counter
kvlens_connector_sources_removed_total counter
kvlens_connector_unacknowledged_bytes gauge
kvlens_connector_source_seconds_total counter replica
kvlens_connector_source_pauses_total counter replica
kvlens_connector_undecodable_total counter replica,reason
kvlens_connector_unknown_partitions gauge
kvlens_connector_unread_report_records gauge
kvlens_connector_unusable_positions_total counter
kvlens_fleet_advice_gpu_seconds_per_hour gauge model,kind,rate_basis
kvlens_fleet_advice_tokens_per_hour gauge model,kind
kvlens_fleet_cached_tokens gauge model,medium
kvlens_fleet_family_answered gauge family
kvlens_fleet_folded_series gauge label
kvlens_fleet_gpu_cache_blocks gauge model
kvlens_fleet_gpu_cache_capacity_blocks gauge model
kvlens_fleet_hit_ratio gauge model,kind
kvlens_fleet_newest_window_timestamp_seconds gauge model
kvlens_fleet_prefill_cost_per_hour gauge model,kind,cause,rate_basis,currency
kvlens_fleet_prefill_gpus gauge model,kind,cause,rate_basis
kvlens_fleet_filled_tokens_per_second gauge model,cause
kvlens_fleet_range_end_timestamp_seconds gauge
kvlens_fleet_range_seconds gauge
kvlens_fleet_replica_avoidable_prefill_tokens_per_second gauge model,replica,role
kvlens_fleet_streams gauge model,trust
kvlens_fleet_tokens_without_rate_per_second gauge model,kind
kvlens_index_age_seconds gauge
kvlens_index_answer_seconds histogram
kvlens_index_blocks gauge
kvlens_index_choices_total counter verdict
kvlens_index_choices_unacknowledged_total counter
kvlens_index_lag_records gauge
kvlens_index_prompts_total counter
kvlens_index_ready_seconds gauge
kvlens_index_records_lost_total counter
kvlens_index_records_set_aside_total counter reason
kvlens_index_records_total counter
kvlens_index_refused_total counter reason
kvlens_index_requests_total counter
kvlens_index_sources gauge
kvlens_index_table_bytes gauge
kvlens_otlp_exports_total counter outcome
kvlens_worker_blocks_without_content_total counter reason
kvlens_worker_changes_out_of_order_total counter reason
kvlens_worker_checkpoint_seconds histogram stage
kvlens_worker_checkpoint_timestamp_seconds gauge
kvlens_worker_checkpoints_total counter agent
kvlens_worker_forgotten_sources_total counter agent
kvlens_worker_holding gauge
kvlens_worker_lag_records gauge agent,partition
kvlens_worker_left_out_events_total counter reason
kvlens_worker_next_offset gauge agent,partition
kvlens_worker_partitions gauge agent
kvlens_worker_rebalances_total counter agent
kvlens_worker_records_lost_total counter agent
kvlens_worker_records_set_aside_total counter agent,reason
kvlens_worker_records_skipped_total counter agent,reason
kvlens_worker_records_total counter agent,partition
kvlens_worker_repeats_given_up_total counter reason
kvlens_worker_rollup_periods_total counter table
kvlens_worker_rollup_seconds histogram
kvlens_worker_figures_total counter table
kvlens_worker_rows_total counter table
kvlens_login_files_renewed_total counter setting
kvlens_login_files_unusable_total counter setting
kvlens_worker_sources gauge agent,partition
kvlens_worker_store_failures_total counter step
kvlens_worker_topic_partitions gauge agent
kvlens_worker_troubled_sources gauge agent,partition,trouble
"""
"""Name, type and labels as they are exposed. Whoever changes a line breaks somebody's alert."""


def promised() -> dict[str, tuple[str, set[str]]]:
    rows = (line.split(" ") for line in PROMISED.strip().splitlines())
    return {name: (kind, set(filter(None, "".join(labels).split(",")))) for name, kind, *labels in rows}


def test_the_catalogue_is_what_was_promised() -> None:
    processes = (metrics.Login, metrics.Connector, metrics.Worker, metrics.Index, Fleet, metrics.Otlp)
    catalogue = [metric for process in processes for metric in metrics.metrics_of(process)]
    assert {metric.name: (metric.kind, set(metric.labels)) for metric in catalogue} == promised()


def test_what_the_processes_expose_is_what_was_promised() -> None:
    found = dict((*exposed(_connector()), *exposed(_worker()), *exposed(_index())))
    # tests/integration/pipeline/dashboards/test_fleet_metrics.py looks at the fleet's, .../otlp at the other.
    elsewhere = ("kvlens_fleet_", "kvlens_otlp_")
    assert found == {name: how for name, how in promised().items() if not name.startswith(elsewhere)}


def test_a_counter_must_be_named_as_it_is_exposed() -> None:
    with pytest.raises(ValueError, match="must end in _total"):
        metric_kinds.Counter("kvlens_connector_records", "Records.")


def exposed(registry: CollectorRegistry) -> Iterator[tuple[str, tuple[str, set[str]]]]:
    """Yield what a scrape finds; every metric must have a sample."""
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
        labels = {frozenset(sample.labels) - {"le"} for sample in samples}
        if not samples:
            continue
        (only,) = labels
        name = samples[0].name if family.type == "counter" else family.name
        yield name, (family.type, set(only))


def _index() -> CollectorRegistry:
    index = IndexMetrics()
    for counter in (index.refused, index.set_aside, index.choices):
        counter.labels("reason").inc()
    return index.registry


def _connector() -> CollectorRegistry:
    for counter in (RENEWED, UNUSABLE):
        counter.labels("ssl_cafile")
    telemetry = Telemetry()
    stream = SourceStream(Source("r", 0, "m", "t", "d", "tcp://127.0.0.1:1"), Connector(), lambda: 0.0)
    for counted in (stream.counts.gaps_by_reason, stream.counts.left_out, stream.counts.undecodable):
        counted["reason"] = 1
    stream.counts.asks["end"] = 1
    gauges = (
        metrics.Connector.unacknowledged_bytes,
        metrics.Connector.hand_over_bytes,
        metrics.Connector.backlog_bytes,
        metrics.Connector.unknown_partitions,
        metrics.Connector.unread_reports,
    )
    telemetry.watch({("r", 0): stream}, {gauge: lambda: 1.0 for gauge in gauges}, lambda _: True)
    telemetry.topic_refused(b"topic", "bad_pod", 1)
    telemetry.reports_refused({"malformed": 1})
    telemetry.pods_unknown("discovery.kubernetes[0]", "ml", "forbidden", "no")
    telemetry.pod_refused("r", "no_model", "no")
    telemetry.description_failed("r", "http://r", "timeout", "late")
    telemetry.scrape_failed("r", "http://r/metrics", "timeout", "no whole page in time")
    telemetry.figures_refused("r", "http://r/metrics", {"negative": 1})
    return telemetry.registry


def _worker() -> CollectorRegistry:
    worker = WorkerMetrics()
    for metric in metrics.metrics_of(metrics.Worker):
        if metric.labels:
            (live,) = (each for each in vars(worker).values() if _is(each, metric))
            live.labels(*metric.labels)
    return worker.registry


def _is(live: object, metric: metric_kinds.Metric) -> bool:
    return getattr(live, "_name", "") == metric.name.removesuffix("_total")
