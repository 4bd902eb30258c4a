"""The trace player against a recomputation that knows nothing of blocks, and over sockets."""

from __future__ import annotations

import gzip
import json
import threading
import urllib.request
from pathlib import Path

import msgspec
import pytest
import zmq

from connectors.scrape.counters import parse_engine_metrics
from pipeline.simulator.addresses import AddressPlan
from pipeline.simulator.engine.block_pool import PoolExhaustedError
from pipeline.simulator.trace_fleet import TraceFleet, TraceFleetSettings
from pipeline.simulator.traffic.trace import TraceReplica, hit_rates, routed
from pipeline.simulator.wire.encoding import encoded_batch
from pipeline.simulator.wire.eras import ERAS
from pipeline.traces.reading import read_trace
from pipeline.traces.trace import TraceRequest
from tests.support.checkout import TRACES
from tests.support.slow_lru import SlowLru
from tests.support.wire import ReferenceCounts, events_of

SLICE = TRACES / "mooncake_conversation_1500.jsonl.gz"
ANY_PORTS = AddressPlan(base_port=0, metrics_port=None)


@pytest.fixture(scope="module")
def requests() -> list[TraceRequest]:
    return read_trace(SLICE).requests


def _recomputed(replicas: int, cap: int | None = None) -> tuple[float, float]:
    """Hit rates in blocks and tokens of as many caches in turn."""
    lines = [json.loads(line) for line in gzip.decompress(SLICE.read_bytes()).splitlines()]
    caches = [SlowLru(512, None if cap is None else cap * 512) for _ in range(replicas)]
    for number, line in enumerate(lines):
        caches[number % replicas].serve(line["hash_ids"], line["input_length"])
    return sum(caches[1:], caches[0]).rates


def _played(requests: list[TraceRequest], replicas: int, budget: int | None) -> tuple[float, float]:
    places = [TraceReplica(512, budget) for _ in range(replicas)]
    for place, request in routed(requests, replicas, "round-robin"):
        places[place].serve(request)
    return hit_rates(place.counters for place in places)


@pytest.mark.parametrize("replicas", [1, 2, 4, 8])
def test_hit_rates_of_endless_caches_are_exact(requests: list[TraceRequest], replicas: int) -> None:
    assert _played(requests, replicas, None) == pytest.approx(_recomputed(replicas), abs=1e-12)


def test_one_endless_cache_misses_each_distinct_block_once(requests: list[TraceRequest]) -> None:
    distinct = len({block for request in requests for block in request.hash_ids})
    total = sum(len(request.hash_ids) for request in requests)
    assert _played(requests, 1, None)[0] == pytest.approx(1 - distinct / total, abs=1e-12)


@pytest.mark.parametrize("budget", [500, 4000])
def test_hit_rates_of_bounded_caches_are_those_of_an_lru(requests: list[TraceRequest], budget: int) -> None:
    assert _played(requests, 1, budget) == pytest.approx(_recomputed(1, budget), abs=1e-12)
    assert _played(requests, 1, budget)[0] < _played(requests, 1, None)[0]


def test_events_follow_the_cache(requests: list[TraceRequest]) -> None:
    replica, counts = TraceReplica(512, 1000), ReferenceCounts()
    for request in requests[:400]:
        before = replica.counters.hit_blocks
        payload = encoded_batch(ERAS["vllm-0.33"], request.seconds, replica.serve(request))
        hits = replica.counters.hit_blocks - before
        counts.apply(payload)
        assert sum(counts.copies.values()) == len(counts.copies) == replica.pool.physical <= 1000
        stored = [event for event in events_of(payload) if event["type"] == "BlockStored"]
        assert [len(event["block_hashes"]) for event in stored] == (
            [len(request.hash_ids) - hits] if hits < len(request.hash_ids) else []
        )
        assert all(len(event["token_ids"]) == 512 * len(event["block_hashes"]) for event in stored)
        assert all(event["block_size"] == 512 for event in stored)
    assert replica.counters.evicted_blocks > 1000
    assert replica.counters.stored_blocks - replica.counters.evicted_blocks == replica.pool.physical


def test_sticky_routing_keeps_conversations_together(requests: list[TraceRequest]) -> None:
    places: dict[int, set[int]] = {}
    for place, request in routed(requests, 4, "sticky"):
        places.setdefault(request.hash_ids[1], set()).add(place)
    assert all(len(chosen) == 1 for chosen in places.values())
    assert set.union(*places.values()) == {0, 1, 2, 3}


def test_a_fleet_publishes_all_of_it_in_trace_time(requests: list[TraceRequest], tmp_path: Path) -> None:
    settings = TraceFleetSettings(512, replicas=2, budget=2000, addresses=ANY_PORTS, truth_directory=tmp_path)
    fleet = TraceFleet(settings)
    counts = [ReferenceCounts() for _ in range(2)]
    times: list[float] = []
    sequences: list[list[int]] = [[], []]
    with zmq.Context() as context:
        subscribers = []
        for address in fleet.addresses():
            subscriber = context.socket(zmq.SUB)
            subscriber.setsockopt(zmq.SUBSCRIBE, b"")
            subscriber.setsockopt(zmq.RCVHWM, 0)
            subscriber.setsockopt(zmq.RCVTIMEO, 60_000)
            subscriber.connect(address.endpoint)
            subscribers.append(subscriber)
        assert fleet.wait_subscribers(60)
        player = threading.Thread(target=fleet.play, args=(requests[:600], lambda: 1_800_000_000.0))
        player.start()
        player.join()
        fleet.write_truth()
        truth = json.loads((tmp_path / "trace.truth.json").read_text())
        for place, subscriber in enumerate(subscribers):
            while sequences[place][-1:] != [truth["replicas"][place]["last_seq"]]:
                _topic, sequence, payload = subscriber.recv_multipart()
                sequences[place].append(int.from_bytes(sequence, "big"))
                counts[place].apply(payload)
                times.append(_time_of(payload))
            subscriber.close(0)
        fleet.close()
    for place, row in enumerate(truth["replicas"]):
        assert sequences[place] == list(range(row["last_seq"] + 1))
        assert counts[place].rows("gpu") == row["resident"]
    span = requests[599].seconds - requests[0].seconds
    assert max(times) - min(times) == pytest.approx(span, abs=10)
    assert max(times) == pytest.approx(1_800_000_000.0, abs=10)
    counters = [row["counters"] for row in truth["replicas"]]
    assert truth["block_hit_rate"] == sum(row["hit_blocks"] for row in counters) / sum(
        row["query_blocks"] for row in counters
    )


def _time_of(payload: bytes) -> float:
    ts: float = msgspec.msgpack.decode(payload)[0]
    return ts


def test_a_prompt_that_others_compute_is_pulled_a_little_later(requests: list[TraceRequest]) -> None:
    dealt = [*routed(requests[:9], 5, "round-robin", prefilling=2)]
    assert [place for place, _ in dealt] == [0, 2, 1, 3, 0, 4, 1, 2, 0, 3, 1, 4, 0, 2, 1, 3, 0, 4]
    for (_, computed), (_, pulled) in zip(dealt[::2], dealt[1::2], strict=True):
        assert computed.hash_ids == pulled.hash_ids
        assert 0.01 < pulled.seconds - computed.seconds < 0.1


def test_a_fleet_with_roles_counts_what_it_computes_and_what_it_pulls(requests: list[TraceRequest]) -> None:
    plan = AddressPlan(base_port=0, metrics_port=0)
    fleet = TraceFleet(TraceFleetSettings(512, replicas=2, prefill_replicas=1, budget=2000, addresses=plan))
    try:
        addresses = fleet.addresses()
        fleet.play(requests[:50])
        pages = [
            urllib.request.urlopen(address.metrics_url or "", timeout=60).read().decode()
            for address in addresses
        ]
        rates = fleet.hit_rates()
    finally:
        fleet.close()
    assert [address.role for address in addresses] == ["prefill", "decode"]
    assert rates == hit_rates([fleet.replicas[0].counters])
    prefill, decode = (parse_engine_metrics(page).ranks[0] for page in pages)
    missed = [replica.counters.query_tokens - replica.counters.hit_tokens for replica in fleet.replicas]
    assert (prefill.computed_tokens, prefill.transferred_tokens) == (missed[0], 0)
    assert (decode.computed_tokens, decode.transferred_tokens) == (0, missed[1])


def test_a_request_longer_than_the_budget_is_refused() -> None:
    with pytest.raises(PoolExhaustedError):
        TraceReplica(512, 3).serve(TraceRequest(0.0, 2000, (1, 2, 3, 4)))
