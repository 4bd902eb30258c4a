"""Alerts on what connectors, workers and indexes report about themselves."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from pipeline.dashboards.panel import Severity
from pipeline.dashboards.prometheus.promql import counted, older


class ProcessAlert(msgspec.Struct, frozen=True, kw_only=True):
    """A condition in PromQL; deploy/prometheus/rules.yaml has all of them."""

    id: Annotated[str, Meta(pattern="^[a-z][a-z0-9-]*$")]
    """Also the heading of its section in docs/alerts.md."""
    title: str
    expression: str
    """It fires for each series that this returns."""
    for_minutes: Annotated[int, Meta(ge=0)] = 0
    severity: Severity = "warning"


_WANTED = "max by (agent) (last_over_time(kvlens_worker_topic_partitions[1h]))"
"""Partitions that want an owner, also where no worker is left to say so."""

PROCESS_ALERTS = (
    ProcessAlert(
        id="source-silent",
        title="Nothing heard of an engine for ten minutes; an idle one is silent as well",
        expression=older("kvlens_connector_last_batch_timestamp_seconds", 600, unset_for="10m"),
    ),
    ProcessAlert(
        id="metrics-page-unreadable",
        title="An engine's metrics page cannot be read",
        expression="increase(kvlens_connector_scrape_failures_total[10m]) > 0",
        for_minutes=10,
    ),
    ProcessAlert(
        id="figures-refused",
        title="A number on an engine's metrics page cannot be used",
        expression="increase(kvlens_connector_refused_figures_total[10m]) > 0",
        for_minutes=10,
    ),
    ProcessAlert(
        id="kubernetes-unanswered",
        title="The Kubernetes API gives no pods: those that come and go are not noticed",
        expression="increase(kvlens_connector_kubernetes_failures_total[10m]) > 20",
    ),
    ProcessAlert(
        id="pods-unlisted",
        title="A connector that listed pods has no list any more: those that come and go are not noticed",
        expression="increase(kvlens_connector_pod_lists_total[15m]) == 0 "
        "and kvlens_connector_pod_lists_total offset 15m > 0",
    ),
    ProcessAlert(
        id="pods-refused",
        title="A pod that matches is not read",
        expression=counted("kvlens_connector_refused_pods_total", "10m"),
    ),
    ProcessAlert(
        id="kafka-behind",
        title="Kafka takes records slower than they come",
        expression="kvlens_connector_unacknowledged_bytes > 16e6",
        for_minutes=1,
        severity="critical",
    ),
    ProcessAlert(
        id="kafka-stands",
        title="Kafka takes no records of a connector",
        expression="kvlens_connector_unacknowledged_bytes > 0 "
        "and increase(kvlens_connector_records_total[2m]) == 0",
        for_minutes=1,
        severity="critical",
    ),
    ProcessAlert(
        id="records-abandoned",
        title="A connector gave records up",
        expression="increase(kvlens_connector_abandoned_records_total[1h]) > 0",
    ),
    ProcessAlert(
        id="sources-contested",
        title="Another connector publishes the same engine",
        expression=counted("kvlens_connector_contested_sources_total", "10m"),
    ),
    ProcessAlert(
        id="positions-unwritten",
        title="A later start may not know exactly where to continue",
        expression="increase(kvlens_connector_position_write_failures_total[10m]) > 5",
    ),
    ProcessAlert(
        id="endpoints-refused",
        title="An endpoint that ZMQ cannot use; the log names it",
        expression=counted("kvlens_connector_refused_endpoints_total", "5m"),
    ),
    ProcessAlert(
        id="workers-behind",
        title="Workers are behind the log",
        expression="max by (partition) (kvlens_worker_lag_records) > 1000",
        for_minutes=5,
    ),
    ProcessAlert(
        id="checkpoint-old",
        title="A worker saved nothing for a minute",
        expression=older("kvlens_worker_checkpoint_timestamp_seconds", 60, unset_for="5m"),
        severity="critical",
    ),
    ProcessAlert(
        id="worker-holding",
        title="Saving is slower than the events come",
        expression="kvlens_worker_holding == 1",
        for_minutes=1,
    ),
    ProcessAlert(
        id="store-failures",
        title="ClickHouse refuses inserts or does not answer",
        expression="increase(kvlens_worker_store_failures_total[5m]) > 0",
    ),
    ProcessAlert(
        id="records-lost",
        title="Retention was faster than the workers",
        expression=counted("kvlens_worker_records_lost_total", "1h"),
        severity="critical",
    ),
    ProcessAlert(
        id="records-set-aside",
        title="Foreign or damaged records in a topic",
        expression=counted("kvlens_worker_records_set_aside_total", "1h"),
    ),
    ProcessAlert(
        id="events-left-out",
        title="An engine announces more than any engine has",
        expression=counted("kvlens_worker_left_out_events_total", "5m"),
    ),
    ProcessAlert(
        id="partitions-without-owner",
        title="Partitions without an owner: restart workers",
        expression=f"(sum by (agent) (kvlens_worker_partitions) or 0 * {_WANTED}) < {_WANTED}",
        for_minutes=2,
        severity="critical",
    ),
    ProcessAlert(
        id="rebalances",
        title="Workers come and go",
        expression="increase(kvlens_worker_rebalances_total[10m]) > 5",
    ),
    ProcessAlert(
        id="index-stale",
        title="An index has not caught up with the log, and routers get old answers",
        expression="kvlens_index_age_seconds > 5",
        for_minutes=2,
        severity="critical",
    ),
)
