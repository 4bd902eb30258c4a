"""What the connector reports to its operators: each event is one call that logs and counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from connectors.discovery.bound import TopicReason
from connectors.discovery.plan import Clash
from connectors.process.limited_log import LogLimiter
from connectors.process.login_files import RENEWED, UNUSABLE
from connectors.process.registry import Registry
from connectors.receive.sub_sockets import EndpointRefused
from connectors.sources import Source, SourceKey
from connectors.telemetry.streams import Counted, StreamCollector
from schemas.events import Closed, Event, Gap, Opened, Undecodable
from schemas.metric_kinds import Counter, Gauge
from schemas.metrics import Connector, metrics_of
from schemas.reasons import (
    DescriptionFailure,
    FigureRefusal,
    KubernetesFailure,
    PodRefusal,
    ReportRefusal,
    ScrapeFailure,
)

SHOWN_TOPIC_BYTES = 100


class Telemetry:
    """Metrics of one connector process in a registry of their own, and its log."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = Registry()
        for counter in (RENEWED, UNUSABLE):
            self.registry.register(counter)
        self._log = structlog.get_logger("kvlens.connector")
        self._limiter = LogLimiter(clock)
        self._counters = {
            metric: self.registry.counter(metric)
            for metric in metrics_of(Connector)
            if isinstance(metric, Counter) and "replica" not in metric.labels
        }

    def watch(
        self,
        streams: Mapping[SourceKey, Counted],
        gauges: Mapping[Gauge, Callable[[], float]],
        connected: Callable[[SourceKey], bool],
    ) -> None:
        """Export the counts of the streams, and the gauges, as they are at each scrape."""
        self.registry.register(StreamCollector(streams, connected))
        for metric, read in gauges.items():
            self.registry.gauge(metric).set_function(read)

    def stream_event(self, source: Source, event: Event) -> None:
        """Log a notice of a stream; the stream itself counts it."""
        stream: dict[str, Any] = {"replica": source.replica, "dp_rank": source.dp_rank}
        if isinstance(event, Opened):
            self._say("source_opened", source.replica, seq=event.first_seq, complete=event.complete, **stream)
        elif isinstance(event, Gap):
            self._warn(
                "batches_lost",
                source.replica,
                first=event.first,
                last=event.last,
                reason=event.reason,
                **stream,
            )
        elif isinstance(event, Undecodable):
            self._warn(
                "events_undecodable",
                source.replica,
                reason=event.reason,
                seq=event.seq,
                count=event.count,
                **({} if event.event_type is None else {"type": event.event_type}),
                **({} if event.medium is None else {"medium": event.medium}),
                **stream,
            )
        elif isinstance(event, Closed):
            self._say("source_closed", source.replica, reason=event.reason, **stream)

    def compiled_code_unavailable(self, reason: str) -> None:
        self._log.error(
            "compiled_code_unavailable",
            message=f"{reason}; streams are read at a third of the speed; install numba again",
        )

    def endpoint_refused(self, refusal: EndpointRefused) -> None:
        self._count(Connector.refused_endpoints)
        self._warn("endpoint_refused", refusal.endpoint, message=str(refusal))

    def sources_changed(self, added: int, removed: int, readdressed: int) -> None:
        self._count(Connector.sources_added, added)
        self._count(Connector.sources_removed, removed)
        self._log.info("sources_changed", added=added, removed=removed, readdressed=readdressed)

    def sources_not_added(self, reason: str) -> None:
        self._count(Connector.failed_additions)
        self._warn("sources_not_added", "", message=reason)

    def settings_unreadable(self, reason: str) -> None:
        self._count(Connector.settings_failures)
        self._log.error("settings_unreadable", message=f"{reason}; the replicas stay as they were")

    def absence_doubted(self, origin: str, known: int, found: int) -> None:
        self._count(Connector.doubted_absences)
        message = f"{found} of {known} replicas are left; the others stay until that was so for a while"
        self._warn("absence_doubted", origin, origin=origin, message=message)

    def restart_needed(self, path: Path) -> None:
        message = f"{path}: other settings than [[replicas]] have changed; restart to use them"
        self._log.warning("restart_needed", message=message)

    def name_unresolved(self, name: str, reason: str) -> None:
        self._count(Connector.dns_failures)
        self._warn("name_unresolved", name, name=name, reason=reason)

    def pods_listed(self, origin: str, namespace: str, pods: int) -> None:
        self._count(Connector.pod_lists)
        self._say("pods_listed", f"{origin} {namespace}", origin=origin, namespace=namespace, pods=pods)

    def pods_unknown(self, origin: str, namespace: str, reason: KubernetesFailure, text: str) -> None:
        self._counters[Connector.kubernetes_failures].labels(reason).inc()
        self._warn(
            "pods_unknown",
            f"{origin} {namespace} {reason}",
            origin=origin,
            namespace=namespace,
            reason=reason,
            message=f"{text}; the replicas stay as they were",
        )

    def pod_refused(self, replica: str, reason: PodRefusal, text: str) -> None:
        self._counters[Connector.refused_pods].labels(reason).inc()
        self._warn("pod_refused", replica, replica=replica, reason=reason, message=text)

    def description_failed(self, replica: str, url: str, reason: DescriptionFailure, text: str) -> None:
        self._counters[Connector.description_failures].labels(reason).inc()
        self._warn("description_failed", replica, replica=replica, url=url, reason=reason, message=text)

    def replica_clashed(self, clash: Clash) -> None:
        self._count(Connector.replica_clashes)
        self._warn(
            "replica_clashed",
            clash.replica,
            replica=clash.replica,
            reason=clash.reason,
            origin=clash.origin,
            owner=clash.owner,
        )

    def topic_refused(self, topic: bytes, reason: TopicReason, messages: int) -> None:
        self._counters[Connector.refused_messages].labels(reason).inc(messages)
        shown = topic[:SHOWN_TOPIC_BYTES].decode(errors="replace")
        self._warn("topic_refused", reason, topic=shown, reason=reason)

    def reports_refused(self, refused: Mapping[ReportRefusal, int]) -> None:
        for reason, count in refused.items():
            self._counters[Connector.refused_reports].labels(reason).inc(count)
            self._warn("reports_refused", reason, reason=reason, count=count)

    def reports_read(self, topic: str, records: int) -> None:
        self._count(Connector.reports_read, records)

    def report_partitions_added(self, topic: str, before: int, now: int) -> None:
        self._warn("report_partitions_added", topic, topic=topic, before=before, now=now)

    def log_grew(self, topic: str, known: int, now: int, message: str) -> None:
        self._warn("log_grew", topic, topic=topic, known=known, now=now, message=message)

    def reports_unreachable(self, topic: str, reason: str) -> None:
        self._count(Connector.reports_unreachable)
        self._warn("reports_unreachable", topic, topic=topic, reason=reason)

    def waiting(self, reason: str) -> None:
        self._log.warning("waiting", message=reason)

    def broker_unreachable(self, bootstrap_servers: str, reason: str) -> None:
        self._warn("broker_unreachable", "", bootstrap_servers=bootstrap_servers, reason=reason)

    def published(self, records: int, size: int) -> None:
        self._count(Connector.records, records)
        self._count(Connector.record_bytes, size)

    def publish_delayed(self, partition: int, seconds: float, waiting_bytes: int) -> None:
        self._count(Connector.publish_delays)
        self._warn("publish_delayed", "", partition=partition, seconds=seconds, waiting_bytes=waiting_bytes)

    def publish_failed(self, partition: int, reason: str) -> None:
        self._count(Connector.publish_failures)
        self._warn("publish_failed", "", partition=partition, reason=reason)

    def records_abandoned(self, records: int) -> None:
        self._count(Connector.abandoned_records, records)
        self._log.error("records_abandoned", records=records)

    def messages_abandoned(self, messages: int) -> None:
        self._count(Connector.abandoned_messages, messages)
        self._log.error("messages_abandoned", messages=messages)

    def counters_skipped(self, replica: str) -> None:
        self._count(Connector.skipped_counters)
        self._warn("counters_skipped", replica, replica=replica)

    def position_unusable(self, source: str, reason: str) -> None:
        self._count(Connector.unusable_positions)
        self._warn("position_unusable", source, source=source, reason=reason)

    def positions_inexact(self, partition: int, offset: int, end: int) -> None:
        self._count(Connector.inexact_positions)
        self._warn("positions_inexact", str(partition), partition=partition, offset=offset, end=end)

    def positions_loaded(self, sources: int, known: int) -> None:
        self._log.info("positions_loaded", sources=sources, known=known)

    def positions_recovered(self, sources: int) -> None:
        self._count(Connector.recovered_positions, sources)
        self._log.warning("positions_recovered", sources=sources)

    def positions_not_written(self, reason: str) -> None:
        self._count(Connector.position_write_failures)
        self._warn("positions_not_written", "", reason=reason)

    def source_paused(self, replica: str, dp_rank: int) -> None:
        self._warn("source_paused", replica, replica=replica, dp_rank=dp_rank)

    def source_contested(self, replica: str, dp_rank: int, connector: str) -> None:
        self._count(Connector.contested_sources)
        self._warn("source_contested", replica, replica=replica, dp_rank=dp_rank, other_connector=connector)

    def scraped(self, replica: str) -> None:
        self._count(Connector.scrapes)

    def scrape_failed(self, replica: str, url: str, reason: ScrapeFailure, message: str) -> None:
        self._counters[Connector.scrape_failures].labels(reason).inc()
        self._warn("scrape_failed", replica, replica=replica, url=url, reason=reason, message=message)

    def figures_refused(self, replica: str, url: str, refused: Mapping[FigureRefusal, int]) -> None:
        for reason, count in refused.items():
            self._counters[Connector.refused_figures].labels(reason).inc(count)
        self._warn("figures_refused", replica, replica=replica, url=url, figures=dict(refused))

    def started(self, sources: int, topic: str) -> None:
        self._log.info("connector_started", sources=sources, topic=topic)

    def stopped(self, abandoned: int) -> None:
        self._log.info("connector_stopped", abandoned_records=abandoned)

    def _count(self, metric: Counter, amount: float = 1) -> None:
        self._counters[metric].inc(amount)

    def _say(self, event: str, of: str, **values: Any) -> None:
        suppressed = self._limiter.admit(event, of)
        if suppressed is not None:
            self._log.info(event, **values, **suppressed)

    def _warn(self, event: str, of: str, **values: Any) -> None:
        suppressed = self._limiter.admit(event, of)
        if suppressed is not None:
            self._log.warning(event, **values, **suppressed)
