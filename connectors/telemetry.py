"""What the connector tells its operators: each event is one call that logs and counts."""

from __future__ import annotations

import time
from collections import Counter as TotalOf
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from connectors.discovery.bound import TopicReason
from connectors.discovery.plan import Clash
from connectors.source import Source, SourceKey, SourceStream
from connectors.subscriber import EndpointRefused
from schemas.events import Closed, Event, Gap, Opened, Undecodable

LOG_SECONDS = 10.0
"""An event of a replica is logged once in this time; the next line says how many were left out."""
SHOWN_TOPIC_BYTES = 100
LOG_KEYS = 10_000
"""Distinct (event, replica) pairs that are remembered for that."""

CounterName = Literal[
    "kvlens_connector_records_total",  # records acknowledged by Kafka
    "kvlens_connector_record_bytes_total",  # their encoded size
    "kvlens_connector_publish_delays_total",  # times a batch waited too long for its acknowledgement
    "kvlens_connector_publish_failures_total",  # produce calls that failed; the batch is sent again
    "kvlens_connector_abandoned_records_total",  # records given up when a stop ran out of time
    "kvlens_connector_abandoned_messages_total",  # received messages given up likewise
    "kvlens_connector_skipped_counters_total",  # engine counters not published because Kafka is behind
    "kvlens_connector_refused_endpoints_total",  # endpoints that ZMQ cannot use
    "kvlens_connector_unusable_positions_total",  # stored positions that say nothing about the log as it is
    "kvlens_connector_inexact_positions_total",  # partitions not read to the end for the start positions
    "kvlens_connector_position_write_failures_total",  # times positions could not be written
    "kvlens_connector_contested_sources_total",  # times another connector was seen to own a source of ours
    "kvlens_connector_sources_added_total",  # sources that began to be read
    "kvlens_connector_sources_removed_total",  # sources that are no longer read
    "kvlens_connector_failed_additions_total",  # times sources could not be added; tried again
    "kvlens_connector_settings_failures_total",  # settings files that were gone or wrong
    "kvlens_connector_dns_failures_total",  # resolutions without an answer
    "kvlens_connector_replica_clashes_total",  # replicas left out because two origins claim them
    "kvlens_connector_scrapes_total",  # metrics pages read
    "kvlens_connector_scrape_failures_total",  # metrics pages that could not be read
]
GaugeName = Literal[
    "kvlens_connector_unacknowledged_bytes",  # encoded records waiting for Kafka
    "kvlens_connector_hand_over_bytes",  # received frames waiting to be decoded
    "kvlens_connector_backlog_bytes",  # received batches waiting for what is missing before them
]
StreamMetricName = Literal[
    "kvlens_connector_batches_total",  # batches taken, by replica
    "kvlens_connector_engine_events_total",  # events in them, as the engine counts
    "kvlens_connector_payload_bytes_total",  # their payloads
    "kvlens_connector_duplicate_batches_total",  # repeated batches dropped
    "kvlens_connector_lost_batches_total",  # sequence numbers that never came
    "kvlens_connector_gaps_total",  # gaps those are in, by reason
    "kvlens_connector_replayed_batches_total",  # batches that came by replay
    "kvlens_connector_replay_requests_total",  # requests for a replay that are over, by outcome
    "kvlens_connector_left_out_batches_total",  # batches received and not taken then, by reason
    "kvlens_connector_restarts_total",  # new lives of an engine
    "kvlens_connector_undecodable_total",  # events or frames skipped, by reason
    "kvlens_connector_last_batch_timestamp_seconds",  # when the last batch came, by replica
    "kvlens_connector_sources",  # sources that are read, by replica
    "kvlens_connector_source_connected",  # those of them that are connected
]


class Telemetry:
    """Metrics of one connector process in a registry of their own, and its log."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        self._log = structlog.get_logger("kvlens.connector")
        self._limiter = LogLimiter(clock)
        names: tuple[CounterName, ...] = get_args(CounterName)
        self._counters = {name: Counter(name, _HELP[name], registry=self.registry) for name in names}
        self._refused_messages = Counter(
            "kvlens_connector_refused_messages_total",
            "Messages of engines that connected, but under a topic that makes no replica.",
            ["reason"],
            registry=self.registry,
        )

    def watch(
        self,
        streams: Mapping[SourceKey, SourceStream],
        gauges: Mapping[GaugeName, Callable[[], float]],
        connected: Callable[[SourceKey], bool],
    ) -> None:
        """Export the counts of the streams, and the gauges, as they are at each scrape."""
        self.registry.register(_StreamCollector(streams, connected))
        for name, read in gauges.items():
            Gauge(name, _HELP[name], registry=self.registry).set_function(read)

    def stream_event(self, source: Source, event: Event) -> None:
        """Log a notice of a stream; the stream itself counts it."""
        place: dict[str, Any] = {"replica": source.replica, "dp_rank": source.dp_rank}
        if isinstance(event, Opened):
            self._say("source_opened", source.replica, seq=event.first_seq, complete=event.complete, **place)
        elif isinstance(event, Gap):
            self._warn(
                "batches_lost",
                source.replica,
                first=event.first,
                last=event.last,
                reason=event.reason,
                **place,
            )
        elif isinstance(event, Undecodable):
            self._warn(
                "events_undecodable",
                source.replica,
                reason=event.reason,
                seq=event.seq,
                count=event.count,
                **place,
            )
        elif isinstance(event, Closed):
            self._say("source_closed", source.replica, reason=event.reason, **place)

    def compiled_code_unavailable(self, reason: str) -> None:
        self._log.error(
            "compiled_code_unavailable",
            message=f"{reason}; streams are read at a third of the speed; install numba anew",
        )

    def endpoint_refused(self, refusal: EndpointRefused) -> None:
        self._count("kvlens_connector_refused_endpoints_total")
        self._warn("endpoint_refused", refusal.endpoint, message=str(refusal))

    def sources_changed(self, added: int, removed: int, readdressed: int) -> None:
        self._count("kvlens_connector_sources_added_total", added)
        self._count("kvlens_connector_sources_removed_total", removed)
        self._log.info("sources_changed", added=added, removed=removed, readdressed=readdressed)

    def sources_not_added(self, reason: str) -> None:
        self._count("kvlens_connector_failed_additions_total")
        self._warn("sources_not_added", "", message=reason)

    def settings_unreadable(self, path: Path, reason: str) -> None:
        self._count("kvlens_connector_settings_failures_total")
        self._log.error("settings_unreadable", message=f"{reason}; the replicas stay as they were")

    def restart_needed(self, path: Path) -> None:
        message = f"{path}: other settings than [[replicas]] have changed; restart to use them"
        self._log.warning("restart_needed", message=message)

    def name_unresolved(self, name: str, reason: str) -> None:
        self._count("kvlens_connector_dns_failures_total")
        self._warn("name_unresolved", name, name=name, reason=reason)

    def replica_clashed(self, clash: Clash) -> None:
        self._count("kvlens_connector_replica_clashes_total")
        self._warn(
            "replica_clashed",
            clash.replica,
            replica=clash.replica,
            reason=clash.reason,
            origin=clash.origin,
            owner=clash.owner,
        )

    def topic_refused(self, topic: bytes, reason: TopicReason, messages: int) -> None:
        self._refused_messages.labels(reason).inc(messages)
        shown = topic[:SHOWN_TOPIC_BYTES].decode(errors="replace")
        self._warn("topic_refused", reason, topic=shown, reason=reason)

    def broker_unreachable(self, bootstrap_servers: str, reason: str) -> None:
        self._warn("broker_unreachable", "", bootstrap_servers=bootstrap_servers, reason=reason)

    def published(self, records: int, size: int) -> None:
        self._count("kvlens_connector_records_total", records)
        self._count("kvlens_connector_record_bytes_total", size)

    def publish_delayed(self, partition: int, seconds: float, waiting_bytes: int) -> None:
        self._count("kvlens_connector_publish_delays_total")
        self._warn("publish_delayed", "", partition=partition, seconds=seconds, waiting_bytes=waiting_bytes)

    def publish_failed(self, partition: int, reason: str) -> None:
        self._count("kvlens_connector_publish_failures_total")
        self._warn("publish_failed", "", partition=partition, reason=reason)

    def records_abandoned(self, records: int) -> None:
        self._count("kvlens_connector_abandoned_records_total", records)
        self._log.error("records_abandoned", records=records)

    def messages_abandoned(self, messages: int) -> None:
        self._count("kvlens_connector_abandoned_messages_total", messages)
        self._log.error("messages_abandoned", messages=messages)

    def counters_skipped(self, replica: str) -> None:
        self._count("kvlens_connector_skipped_counters_total")
        self._warn("counters_skipped", replica, replica=replica)

    def position_unusable(self, source: str, reason: str) -> None:
        self._count("kvlens_connector_unusable_positions_total")
        self._warn("position_unusable", source, source=source, reason=reason)

    def positions_inexact(self, partition: int, offset: int, end: int) -> None:
        self._count("kvlens_connector_inexact_positions_total")
        self._warn("positions_inexact", str(partition), partition=partition, offset=offset, end=end)

    def positions_loaded(self, sources: int, known: int) -> None:
        self._log.info("positions_loaded", sources=sources, known=known)

    def positions_not_written(self, reason: str) -> None:
        self._count("kvlens_connector_position_write_failures_total")
        self._warn("positions_not_written", "", reason=reason)

    def source_contested(self, replica: str, dp_rank: int, connector: str) -> None:
        self._count("kvlens_connector_contested_sources_total")
        self._warn("source_contested", replica, replica=replica, dp_rank=dp_rank, other_connector=connector)

    def scraped(self, replica: str) -> None:
        self._count("kvlens_connector_scrapes_total")

    def scrape_failed(self, replica: str, url: str, reason: str) -> None:
        self._count("kvlens_connector_scrape_failures_total")
        self._warn("scrape_failed", replica, replica=replica, url=url, reason=reason)

    def started(self, sources: int, topic: str) -> None:
        self._log.info("connector_started", sources=sources, topic=topic)

    def stopped(self, abandoned: int) -> None:
        self._log.info("connector_stopped", abandoned_records=abandoned)

    def _count(self, name: CounterName, amount: float = 1) -> None:
        self._counters[name].inc(amount)

    def _say(self, event: str, of: str, **values: Any) -> None:
        suppressed = self._limiter.admit((event, of))
        if suppressed is not None:
            self._log.info(event, **values, **_left_out(suppressed))

    def _warn(self, event: str, of: str, **values: Any) -> None:
        suppressed = self._limiter.admit((event, of))
        if suppressed is not None:
            self._log.warning(event, **values, **_left_out(suppressed))


class LogLimiter:
    """Lets one line per key through in LOG_SECONDS."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def admit(self, key: tuple[str, str]) -> int | None:
        """Return how many lines of this key were left out before this one; None to leave it out too."""
        now = self._clock()
        last, suppressed = self._seen.get(key, (float("-inf"), 0))
        if now - last < LOG_SECONDS:
            self._seen[key] = (last, suppressed + 1)
            return None
        if len(self._seen) >= LOG_KEYS:
            self._seen.clear()
        self._seen[key] = (now, 0)
        return suppressed


def _left_out(suppressed: int) -> dict[str, int]:
    return {"suppressed": suppressed} if suppressed else {}


class _StreamCollector(Collector):
    """Reads the streams' own counts when Prometheus asks, so that counting costs the hot path nothing."""

    def __init__(
        self, streams: Mapping[SourceKey, SourceStream], connected: Callable[[SourceKey], bool]
    ) -> None:
        self._streams = streams
        self._connected = connected

    def collect(self) -> Iterable[Metric]:
        replicas: dict[str, list[SourceStream]] = {}
        for stream in self._streams.values():
            replicas.setdefault(stream.source.replica, []).append(stream)
        for name, attribute in _STREAM_COUNTS.items():
            family = CounterMetricFamily(name, _HELP[name], labels=["replica"])
            for replica, streams in replicas.items():
                family.add_metric([replica], sum(getattr(stream.counts, attribute) for stream in streams))
            yield family
        for name, attribute in _STREAM_REASONS.items():
            family = CounterMetricFamily(name, _HELP[name], labels=["replica", "reason"])
            for replica, reason, count in _summed(replicas, attribute):
                family.add_metric([replica, reason], count)
            yield family
        requests: StreamMetricName = "kvlens_connector_replay_requests_total"
        family = CounterMetricFamily(requests, _HELP[requests], labels=["replica", "outcome"])
        for replica, outcome, count in _summed(replicas, "asks"):
            family.add_metric([replica, outcome], count)
        yield family
        last: StreamMetricName = "kvlens_connector_last_batch_timestamp_seconds"
        gauge = GaugeMetricFamily(last, _HELP[last], labels=["replica"])
        for replica, streams in replicas.items():
            gauge.add_metric([replica], max(stream.counts.last_received_at for stream in streams))
        yield gauge
        sources: StreamMetricName = "kvlens_connector_sources"
        gauge = GaugeMetricFamily(sources, _HELP[sources], labels=["replica"])
        for replica, streams in replicas.items():
            gauge.add_metric([replica], len(streams))
        yield gauge
        connected: StreamMetricName = "kvlens_connector_source_connected"
        gauge = GaugeMetricFamily(connected, _HELP[connected], labels=["replica"])
        for replica, streams in replicas.items():
            gauge.add_metric([replica], sum(self._connected(stream.source.key) for stream in streams))
        yield gauge


def _summed(replicas: Mapping[str, Iterable[SourceStream]], attribute: str) -> Iterator[tuple[str, str, int]]:
    """Yield replica, value and count of what its streams count by a value."""
    for replica, streams in replicas.items():
        total: TotalOf[str] = TotalOf()
        for stream in streams:
            total.update(getattr(stream.counts, attribute))
        for value, count in sorted(total.items()):
            yield replica, value, count


_STREAM_COUNTS: dict[StreamMetricName, str] = {
    "kvlens_connector_batches_total": "batches",
    "kvlens_connector_engine_events_total": "engine_events",
    "kvlens_connector_payload_bytes_total": "payload_bytes",
    "kvlens_connector_duplicate_batches_total": "duplicates",
    "kvlens_connector_lost_batches_total": "lost_batches",
    "kvlens_connector_replayed_batches_total": "replayed",
    "kvlens_connector_restarts_total": "restarts",
}
_STREAM_REASONS: dict[StreamMetricName, str] = {
    "kvlens_connector_gaps_total": "gaps_by_reason",
    "kvlens_connector_left_out_batches_total": "left_out",
    "kvlens_connector_undecodable_total": "undecodable",
}

_HELP: dict[CounterName | GaugeName | StreamMetricName, str] = {
    "kvlens_connector_records_total": "Records acknowledged by Kafka.",
    "kvlens_connector_record_bytes_total": "Encoded size of the records acknowledged by Kafka.",
    "kvlens_connector_publish_delays_total": "Times a batch of records waited long for its acknowledgement.",
    "kvlens_connector_publish_failures_total": "Produce calls that failed; their records are sent again.",
    "kvlens_connector_abandoned_records_total": "Records given up when a stop ran out of time.",
    "kvlens_connector_abandoned_messages_total": "Received messages given up when a stop ran out of time.",
    "kvlens_connector_skipped_counters_total": "Engine counters not published because Kafka is behind.",
    "kvlens_connector_refused_endpoints_total": "Endpoints that ZMQ cannot use.",
    "kvlens_connector_unusable_positions_total": "Stored positions that say nothing about the log as it is.",
    "kvlens_connector_inexact_positions_total": "Partitions not read to the end for the start positions.",
    "kvlens_connector_position_write_failures_total": "Times positions could not be written.",
    "kvlens_connector_contested_sources_total": "Times another connector was seen to own a source of ours.",
    "kvlens_connector_sources_added_total": "Sources that began to be read.",
    "kvlens_connector_sources_removed_total": "Sources that are no longer read.",
    "kvlens_connector_failed_additions_total": "Times that sources could not be added; it is tried again.",
    "kvlens_connector_settings_failures_total": "Settings files that were gone or wrong when read again.",
    "kvlens_connector_dns_failures_total": "Resolutions of a configured name that failed or took too long.",
    "kvlens_connector_replica_clashes_total": "Replicas left out because two origins claim them.",
    "kvlens_connector_scrapes_total": "Metrics pages of engines read.",
    "kvlens_connector_scrape_failures_total": "Metrics pages of engines that could not be read.",
    "kvlens_connector_unacknowledged_bytes": "Encoded records waiting for Kafka.",
    "kvlens_connector_hand_over_bytes": "Received frames waiting to be decoded.",
    "kvlens_connector_backlog_bytes": "Received batches waiting for what is missing before them.",
    "kvlens_connector_batches_total": "Batches taken.",
    "kvlens_connector_engine_events_total": "Events in the batches, as the engine counts them.",
    "kvlens_connector_payload_bytes_total": "Payload bytes of the batches.",
    "kvlens_connector_duplicate_batches_total": "Repeated batches dropped.",
    "kvlens_connector_lost_batches_total": "Sequence numbers that never came.",
    "kvlens_connector_gaps_total": "Gaps in the sequence numbers that could not be filled.",
    "kvlens_connector_replayed_batches_total": "Batches that came by replay.",
    "kvlens_connector_replay_requests_total": "Requests for a replay that are over, by how they ended.",
    "kvlens_connector_left_out_batches_total": "Batches received that could not be taken at that time.",
    "kvlens_connector_restarts_total": "New lives of an engine.",
    "kvlens_connector_undecodable_total": "Events or frames skipped because they could not be understood.",
    "kvlens_connector_sources": "Sources (ranks) that are read.",
    "kvlens_connector_source_connected": "Sources (ranks) whose event stream is connected.",
    "kvlens_connector_last_batch_timestamp_seconds": "When the last batch was received.",
}
