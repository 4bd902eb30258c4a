"""What kvlens exports to Prometheus: every metric of the processes, and the fleet's figures.

The registries of the processes, docs/metrics.md and the checks of other pages are made from this.
"""

from __future__ import annotations

from typing import TypeAlias

from schemas.fleet_metrics import Fleet
from schemas.metric_kinds import Counter, Gauge, Histogram, Metric

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class Login:
    """Metrics of the login to Kafka and ClickHouse, of `kvlens connect` and `kvlens work`."""

    renewed = Counter(
        "kvlens_login_files_renewed_total",
        "Times that a changed certificate, password or token was read for new connections.",
        ("setting",),
    )
    unusable = Counter(
        "kvlens_login_files_unusable_total",
        "Times that a changed one could not be used: the one before goes on.",
        ("setting",),
    )


class Connector:
    """Metrics of `kvlens connect`."""

    records = Counter("kvlens_connector_records_total", "Records acknowledged by Kafka.")
    record_bytes = Counter(
        "kvlens_connector_record_bytes_total", "Encoded size of the records acknowledged by Kafka."
    )
    publish_delays = Counter(
        "kvlens_connector_publish_delays_total",
        "Batches of records that waited long for Kafka.",
    )
    publish_failures = Counter(
        "kvlens_connector_publish_failures_total", "Failed produce calls; their records are sent again."
    )
    abandoned_records = Counter(
        "kvlens_connector_abandoned_records_total",
        "Records given up: a stop ran out of time, or they are too large for Kafka.",
    )
    abandoned_messages = Counter(
        "kvlens_connector_abandoned_messages_total", "Messages given up when a stop ran out of time."
    )
    skipped_counters = Counter(
        "kvlens_connector_skipped_counters_total", "Engine counters not published because Kafka is behind."
    )
    refused_endpoints = Counter("kvlens_connector_refused_endpoints_total", "Endpoints that ZMQ cannot use.")
    refused_messages = Counter(
        "kvlens_connector_refused_messages_total",
        "Messages of engines under a topic that makes no replica.",
        ("reason",),
    )
    refused_reports = Counter(
        "kvlens_connector_refused_reports_total",
        "Reports of LMCache's servers left out: requests, Kafka records, batches, or objects.",
        ("reason",),
    )
    reports_read = Counter(
        "kvlens_connector_report_records_total", "Kafka records of LMCache's servers read."
    )
    reports_unreachable = Counter(
        "kvlens_connector_reports_unreachable_total",
        "Times that LMCache's topic could not be read; it is tried again.",
    )
    unusable_positions = Counter(
        "kvlens_connector_unusable_positions_total",
        "Stored positions that do not fit the log.",
    )
    inexact_positions = Counter(
        "kvlens_connector_inexact_positions_total",
        "Partitions not read to the end for positions.",
    )
    recovered_positions = Counter(
        "kvlens_connector_recovered_positions_total",
        "Positions found in the events topic, as the positions topic was empty.",
    )
    position_write_failures = Counter(
        "kvlens_connector_position_write_failures_total", "Times positions could not be written."
    )
    contested_sources = Counter(
        "kvlens_connector_contested_sources_total",
        "Times that another connector had a source of ours.",
    )
    sources_added = Counter("kvlens_connector_sources_added_total", "Sources that began to be read.")
    sources_removed = Counter("kvlens_connector_sources_removed_total", "Sources that are no longer read.")
    failed_additions = Counter(
        "kvlens_connector_failed_additions_total",
        "Times that sources could not be added; it is tried again.",
    )
    doubted_absences = Counter(
        "kvlens_connector_doubted_absences_total",
        "Times that most replicas of an origin were gone at once: counts only if it stays so.",
    )
    settings_failures = Counter(
        "kvlens_connector_settings_failures_total",
        "Settings files gone or wrong when read again.",
    )
    dns_failures = Counter(
        "kvlens_connector_dns_failures_total",
        "Resolutions of a name that failed or took too long.",
    )
    pod_lists = Counter(
        "kvlens_connector_pod_lists_total", "Whole lists of pods that the Kubernetes API gave."
    )
    kubernetes_failures = Counter(
        "kvlens_connector_kubernetes_failures_total",
        "Times that the Kubernetes API gave no pods, or a watch broke; replicas stay.",
        ("reason",),
    )
    refused_pods = Counter(
        "kvlens_connector_refused_pods_total",
        "Pods found that are not read, or only in part.",
        ("reason",),
    )
    description_failures = Counter(
        "kvlens_connector_description_failures_total",
        "Times that an engine in a pod did not say where it publishes; it is asked again.",
        ("reason",),
    )
    replica_clashes = Counter(
        "kvlens_connector_replica_clashes_total", "Replicas left out because two origins claim them."
    )
    scrapes = Counter("kvlens_connector_scrapes_total", "Metrics pages of engines read.")
    scrape_failures = Counter(
        "kvlens_connector_scrape_failures_total",
        "Metrics pages of engines that could not be read.",
        ("reason",),
    )
    refused_figures = Counter(
        "kvlens_connector_refused_figures_total",
        "Impossible figures on engines' metrics pages; the rest of a page is taken.",
        ("reason",),
    )

    unacknowledged_bytes = Gauge(
        "kvlens_connector_unacknowledged_bytes", "Encoded records waiting for Kafka."
    )
    hand_over_bytes = Gauge("kvlens_connector_hand_over_bytes", "Received frames waiting to be decoded.")
    backlog_bytes = Gauge(
        "kvlens_connector_backlog_bytes", "Bytes held back until missing batches are replayed."
    )

    unknown_partitions = Gauge(
        "kvlens_connector_unknown_partitions",
        "Partitions that the events topic got since the start: workers refuse it.",
    )
    unread_reports = Gauge(
        "kvlens_connector_unread_report_records",
        "Records of LMCache's topic not read yet.",
    )

    batches = Counter("kvlens_connector_batches_total", "Batches taken.", ("replica",))
    engine_events = Counter(
        "kvlens_connector_engine_events_total",
        "Events in the batches, as the engine counts them.",
        ("replica",),
    )
    skipped_events = Counter(
        "kvlens_connector_skipped_events_total",
        "Events left out, of types that change no residency.",
        ("replica",),
    )
    payload_bytes = Counter(
        "kvlens_connector_payload_bytes_total", "Payload bytes of the batches.", ("replica",)
    )
    duplicate_batches = Counter(
        "kvlens_connector_duplicate_batches_total", "Repeated batches dropped.", ("replica",)
    )
    lost_batches = Counter(
        "kvlens_connector_lost_batches_total", "Sequence numbers that never came.", ("replica",)
    )
    gaps = Counter(
        "kvlens_connector_gaps_total",
        "Gaps that could not be filled.",
        ("replica", "reason"),
    )
    replayed_batches = Counter(
        "kvlens_connector_replayed_batches_total", "Batches that came by replay.", ("replica",)
    )
    replay_requests = Counter(
        "kvlens_connector_replay_requests_total",
        "Requests for a replay, by how they ended.",
        ("replica", "outcome"),
    )
    left_out_batches = Counter(
        "kvlens_connector_left_out_batches_total",
        "Batches received that could not be taken then.",
        ("replica", "reason"),
    )
    restarts = Counter("kvlens_connector_restarts_total", "New sessions of an engine.", ("replica",))
    source_seconds = Counter(
        "kvlens_connector_source_seconds_total",
        "Time spent on the messages of a replica.",
        ("replica",),
    )
    source_pauses = Counter(
        "kvlens_connector_source_pauses_total",
        "Times that a source was left unread, as more than its share waited.",
        ("replica",),
    )
    undecodable = Counter(
        "kvlens_connector_undecodable_total",
        "Events or frames skipped, as nobody understood them.",
        ("replica", "reason"),
    )
    replica_info = Gauge(
        "kvlens_connector_replica_info",
        "1 for each replica read, with its role by settings or labels; join on `replica`.",
        ("replica", "role"),
    )
    sources = Gauge("kvlens_connector_sources", "Sources (ranks) that are read.", ("replica",))
    source_connected = Gauge(
        "kvlens_connector_source_connected",
        "Sources (ranks) whose event stream is connected.",
        ("replica",),
    )
    last_batch_timestamp = Gauge(
        "kvlens_connector_last_batch_timestamp_seconds", "When the last batch was received.", ("replica",)
    )


class Worker:
    """Metrics of `kvlens work`."""

    records = Counter("kvlens_worker_records_total", "Records applied.", ("agent", "partition"))
    skipped = Counter(
        "kvlens_worker_records_skipped_total",
        "Records not applied, as they came again (reason repeated).",
        ("agent", "reason"),
    )
    set_aside = Counter(
        "kvlens_worker_records_set_aside_total",
        "Records that cannot be applied; of events and residency they are in set.aside.v1.",
        ("agent", "reason"),
    )
    left_out = Counter(
        "kvlens_worker_left_out_events_total",
        "Events beyond a limit of the worker; their sources are degraded.",
        ("reason",),
    )
    without_content = Counter(
        "kvlens_worker_blocks_without_content_total",
        "Blocks without a content hash, at sources of which others have one.",
        ("reason",),
    )
    gave_up_repeats = Counter(
        "kvlens_worker_repeats_given_up_total",
        "Media and groups of a source that lost track of what was announced again.",
        ("reason",),
    )
    out_of_order = Counter(
        "kvlens_worker_changes_out_of_order_total",
        "Changes of residency that did not count in the order of event time.",
        ("reason",),
    )
    lost = Counter(
        "kvlens_worker_records_lost_total",
        "Records that retention removed before they were read.",
        ("agent",),
    )
    next_offset = Gauge("kvlens_worker_next_offset", "Offset applied next.", ("agent", "partition"))
    lag = Gauge(
        "kvlens_worker_lag_records",
        "Records waiting in the topic, markers of transactions included.",
        ("agent", "partition"),
    )
    sources = Gauge("kvlens_worker_sources", "Event streams in the state.", ("agent", "partition"))
    forgotten = Counter(
        "kvlens_worker_forgotten_sources_total",
        "Event streams forgotten, as nothing came for `worker.forget_seconds`.",
        ("agent",),
    )
    troubled = Gauge(
        "kvlens_worker_troubled_sources",
        "Event streams that are partial, degraded, disconnected, drifting or limited.",
        ("agent", "partition", "trouble"),
    )
    partitions = Gauge("kvlens_worker_partitions", "Partitions owned.", ("agent",))
    topic_partitions = Gauge(
        "kvlens_worker_topic_partitions",
        "Partitions of the topic that the agents of a group share.",
        ("agent",),
    )
    rebalances = Counter("kvlens_worker_rebalances_total", "Assignments received.", ("agent",))
    checkpoints = Counter("kvlens_worker_checkpoints_total", "Transactions committed.", ("agent",))
    checkpoint_seconds = Histogram(
        "kvlens_worker_checkpoint_seconds",
        "Stages of a checkpoint: copy (large tables, beside the loop), cut (in the loop), rows, transaction.",
        ("stage",),
        buckets=_SECONDS,
    )
    checkpoint_timestamp = Gauge(
        "kvlens_worker_checkpoint_timestamp_seconds", "When the last checkpoint finished."
    )
    holding = Gauge("kvlens_worker_holding", "1 while nothing is applied because saving is slow.")
    rows = Counter("kvlens_worker_rows_total", "Rows written into ClickHouse.", ("table",))
    figures = Counter(
        "kvlens_worker_figures_total",
        "Rows written to Kafka as figures.",
        ("table",),
    )
    store_failures = Counter(
        "kvlens_worker_store_failures_total", "Failed calls to ClickHouse; each is repeated.", ("step",)
    )
    rollup_periods = Counter(
        "kvlens_worker_rollup_periods_total", "Minutes and hours recomputed.", ("table",)
    )
    rollup_seconds = Histogram("kvlens_worker_rollup_seconds", "One rollup run.", buckets=_SECONDS)


class Index:
    """What an index does."""

    requests = Counter("kvlens_index_requests_total", "Questions answered.")
    prompts = Counter("kvlens_index_prompts_total", "Prompts in them.")
    refused = Counter(
        "kvlens_index_refused_total",
        "Questions without an answer, and refused posts of choices.",
        ("reason",),
    )
    choices = Counter(
        "kvlens_index_choices_total",
        "Routers' choices acknowledged: best, worse, or why they were not judged.",
        ("verdict",),
    )
    choices_unacknowledged = Counter(
        "kvlens_index_choices_unacknowledged_total",
        "Routers' choices not acknowledged in time; the router got an error.",
    )
    answer_seconds = Histogram(
        "kvlens_index_answer_seconds",
        "From a whole question to its answer, without the network.",
        buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0),
    )
    records = Counter("kvlens_index_records_total", "Event records applied.")
    set_aside = Counter(
        "kvlens_index_records_set_aside_total", "Event records that cannot be applied.", ("reason",)
    )
    lost = Counter(
        "kvlens_index_records_lost_total", "Event records that retention removed before they were read."
    )
    age = Gauge(
        "kvlens_index_age_seconds",
        "Since it last had read everything, in the partition where that is longest ago.",
    )
    lag = Gauge("kvlens_index_lag_records", "Event records known of and not read.")
    sources = Gauge("kvlens_index_sources", "Event streams followed.")
    blocks = Gauge("kvlens_index_blocks", "Distinct blocks, counted once for each medium, group and stream.")
    table_bytes = Gauge("kvlens_index_table_bytes", "Memory of the table of who holds what.")
    ready_seconds = Gauge(
        "kvlens_index_ready_seconds", "From its start until it had caught up with the log; 0 before."
    )


class Otlp:
    """What becomes of the fleet's figures on their way to an OpenTelemetry receiver (`otlp.endpoint`)."""

    exports = Counter(
        "kvlens_otlp_exports_total",
        "Ranges due at the receiver of `otlp.endpoint`, by what became of them.",
        ("outcome",),
    )


Catalogue: TypeAlias = type[Login] | type[Connector] | type[Worker] | type[Index] | type[Fleet] | type[Otlp]


def metrics_of(process: Catalogue) -> list[Metric]:
    """Return the metrics of a process, by name."""
    metrics = [value for value in vars(process).values() if isinstance(value, Metric)]
    return sorted(metrics, key=lambda metric: metric.name)
