"""Metrics of the streams, read from their own counts."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from connectors.order.counts import StreamCounts
from connectors.sources import Source, SourceKey
from schemas.metric_kinds import Counter, Gauge
from schemas.metrics import Connector

_COUNTS: dict[Counter, Callable[[StreamCounts], float]] = {
    Connector.batches: lambda counts: counts.batches,
    Connector.engine_events: lambda counts: counts.engine_events,
    Connector.skipped_events: lambda counts: counts.skipped_events,
    Connector.payload_bytes: lambda counts: counts.payload_bytes,
    Connector.duplicate_batches: lambda counts: counts.duplicates,
    Connector.lost_batches: lambda counts: counts.lost_batches,
    Connector.replayed_batches: lambda counts: counts.replayed,
    Connector.restarts: lambda counts: counts.restarts,
    Connector.source_seconds: lambda counts: counts.seconds,
    Connector.source_pauses: lambda counts: counts.pauses,
}
_COUNTS_BY_REASON: dict[Counter, Callable[[StreamCounts], Mapping[str, int]]] = {
    Connector.gaps: lambda counts: counts.gaps_by_reason,
    Connector.left_out_batches: lambda counts: counts.left_out,
    Connector.undecodable: lambda counts: counts.undecodable,
    Connector.replay_requests: lambda counts: counts.asks,
}


class Counted(Protocol):
    """A stream, as far as its metrics go."""

    @property
    def source(self) -> Source: ...
    @property
    def counts(self) -> StreamCounts: ...


class StreamCollector(Collector):
    """Sums the counts of each replica's streams when Prometheus asks: counting costs the hot path nothing.

    While a replica is there, its sums also have the streams that ended: a counter that falls counts as one
    that began again, and all that is left in it as new.
    """

    def __init__(self, streams: Mapping[SourceKey, Counted], connected: Callable[[SourceKey], bool]) -> None:
        self._streams = streams
        self._connected = connected
        self._seen: dict[str, list[StreamCounts]] = {}
        """Counts of the streams at the last time, by replica."""
        self._ended: dict[str, StreamCounts] = {}
        """Sum of those that have ended."""

    def collect(self) -> Iterable[Metric]:
        replicas: dict[str, list[Counted]] = {}
        for stream in self._streams.values():
            replicas.setdefault(stream.source.replica, []).append(stream)
        counted = self._with_ended(
            {replica: [stream.counts for stream in streams] for replica, streams in replicas.items()}
        )
        for metric, count_of in _COUNTS.items():
            counter = CounterMetricFamily(metric.name, metric.meaning, labels=metric.labels)
            for replica, counts in counted.items():
                counter.add_metric([replica], sum(map(count_of, counts)))
            yield counter
        for metric, counts_of in _COUNTS_BY_REASON.items():
            counter = CounterMetricFamily(metric.name, metric.meaning, labels=metric.labels)
            for replica, counts in counted.items():
                for reason, count in _summed(map(counts_of, counts)):
                    counter.add_metric([replica, reason], count)
            yield counter
        yield _gauge(
            Connector.last_batch_timestamp,
            replicas,
            lambda streams: max(stream.counts.last_received_at for stream in streams),
        )
        yield _gauge(Connector.sources, replicas, len)
        about = Connector.replica_info
        info = GaugeMetricFamily(about.name, about.meaning, labels=about.labels)
        for replica, streams in replicas.items():
            info.add_metric([replica, streams[0].source.role], 1)
        yield info
        yield _gauge(
            Connector.source_connected,
            replicas,
            lambda streams: sum(self._connected(stream.source.key) for stream in streams),
        )

    def _with_ended(self, present: dict[str, list[StreamCounts]]) -> dict[str, list[StreamCounts]]:
        """Return the counts of each replica's streams, and the sum of those that are no longer there."""
        ended = {replica: counts for replica, counts in self._ended.items() if replica in present}
        for replica, counts in present.items():
            there = {*map(id, counts)}
            for gone in (one for one in self._seen.get(replica, ()) if id(one) not in there):
                ended[replica] = _sum(ended.get(replica, StreamCounts()), gone)
        self._seen, self._ended = present, ended
        return {
            replica: [*counts, ended[replica]] if replica in ended else counts
            for replica, counts in present.items()
        }


def _sum(one: StreamCounts, other: StreamCounts) -> StreamCounts:
    names = [field.name for field in fields(StreamCounts)]
    return StreamCounts(**{name: getattr(one, name) + getattr(other, name) for name in names})


def _gauge(
    metric: Gauge,
    replicas: Mapping[str, list[Counted]],
    value_of: Callable[[list[Counted]], float],
) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(metric.name, metric.meaning, labels=metric.labels)
    for replica, streams in replicas.items():
        gauge.add_metric([replica], value_of(streams))
    return gauge


def _summed(counts: Iterable[Mapping[str, int]]) -> Iterator[tuple[str, int]]:
    """Yield the sums of all counts, by reason."""
    total: collections.Counter[str] = collections.Counter()
    for counted in counts:
        total.update(counted)
    yield from sorted(total.items())
