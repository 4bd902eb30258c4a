"""What Prometheus sees of the streams of a replica while some of them come and go."""

from __future__ import annotations

from types import SimpleNamespace

from connectors.order.counts import StreamCounts
from connectors.sources import Source
from connectors.telemetry.streams import StreamCollector


def _stream(replica: str, rank: int, lost: int) -> SimpleNamespace:
    counts = StreamCounts(lost_batches=lost)
    counts.gaps_by_reason["replay_timeout"] = lost
    return SimpleNamespace(source=Source(replica, rank, "m", "t", "d", "tcp://h:1"), counts=counts)


def _sums(collector: StreamCollector) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels["replica"]): sample.value
        for metric in collector.collect()
        if metric.name in ("kvlens_connector_lost_batches", "kvlens_connector_gaps")
        for sample in metric.samples
    }


def test_no_counter_falls_while_its_replica_is_there() -> None:
    lost, gaps = "kvlens_connector_lost_batches_total", "kvlens_connector_gaps_total"
    streams = {(name, rank): _stream(name, rank, 5) for name, rank in [("a", 0), ("a", 1), ("b", 0)]}
    collector = StreamCollector(streams, lambda _: True)
    assert _sums(collector) == {(lost, "a"): 10, (gaps, "a"): 10, (lost, "b"): 5, (gaps, "b"): 5}
    streams.pop(("a", 1)).counts.lost_batches += 1  # as it ended
    del streams["b", 0]
    for _ in range(2):
        assert _sums(collector) == {(lost, "a"): 11, (gaps, "a"): 10}
    streams["a", 0], streams["b", 0] = _stream("a", 0, 2), _stream("b", 0, 3)
    assert _sums(collector) == {(lost, "a"): 13, (gaps, "a"): 12, (lost, "b"): 3, (gaps, "b"): 3}
