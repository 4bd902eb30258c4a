"""A whole fleet over real sockets: mixed eras, ranks, tiers, restarts, lost batches, and what it costs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from socket import create_server
from typing import Any

import msgspec
import pytest
import zmq
from prometheus_client.parser import text_string_to_metric_families

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

import random
import urllib.request

from pipeline.simulator.addresses import AddressPlan
from pipeline.simulator.config_file import replicas_toml
from pipeline.simulator.engine.settings import EngineSettings
from pipeline.simulator.engine.truth import CHECKPOINT_COLUMNS
from pipeline.simulator.fleet import Fleet, FleetSettings
from pipeline.simulator.traffic.workload import WorkloadSettings
from schemas.settings import Settings
from tests.support.wire import ReferenceCounts, events_of

TRAFFIC = WorkloadSettings(
    seed=11,
    rate=20.0,
    system_prompts=3,
    system_prompt_tokens=200,
    mean_user_tokens=80,
    mean_output_tokens=40,
    max_prompt_tokens=1500,
    mean_think_seconds=2.0,
)
SMALL = FleetSettings(
    replicas=2,
    engine=EngineSettings(num_blocks=220, decode_tokens=4),
    workload=TRAFFIC,
    addresses=AddressPlan(base_port=0, metrics_port=None),
)


@contextmanager
def _opened(settings: FleetSettings) -> Iterator[Fleet]:
    """Open a fleet on ports of its own; tries again when another process was faster."""
    if settings.addresses.base_port:
        for _ in range(20):
            base = random.randrange(20_000, 32_000, 400)
            try:
                fleet = Fleet(replace(settings, addresses=replace(settings.addresses, base_port=base)))
            except OSError:
                continue
            break
    else:
        fleet = Fleet(settings)
    try:
        yield fleet
    finally:
        fleet.close()


@pytest.mark.parametrize("taken", ["replay_base_port", "metrics_port"])
def test_where_an_address_is_in_use_no_other_stays_open(taken: str, free_port: Callable[[], int]) -> None:
    ports: dict[str, Any] = {
        "base_port": free_port(),
        "replay_base_port": free_port(),
        "metrics_port": free_port(),
    }
    with create_server(("127.0.0.1", ports[taken])):
        with pytest.raises(OSError, match="cannot"):
            Fleet(replace(SMALL, replicas=1, addresses=AddressPlan(**ports)))
        del ports[taken]
        for port in ports.values():
            create_server(("127.0.0.1", port)).close()


def _steps(fleet: Fleet, count: int) -> None:
    for step in range(count):
        fleet.advance(0.05, step * 0.05)


@contextmanager
def _subscribed(fleet: Fleet) -> Iterator[list[zmq.Socket[bytes]]]:
    with zmq.Context() as context:
        sockets = []
        for source in fleet.sources:
            socket = context.socket(zmq.SUB)
            socket.setsockopt(zmq.SUBSCRIBE, b"")
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(source.publisher.endpoint)
            sockets.append(socket)
        assert fleet.wait_subscribers(60)
        yield sockets
        for socket in sockets:
            socket.close()


def _received(socket: zmq.Socket[bytes], last_sequence: int | None) -> list[list[bytes]]:
    """Read frames up to the last sequence of the present life."""
    frames: list[list[bytes]] = []
    while last_sequence is not None and socket.poll(60_000):
        frames.append(socket.recv_multipart())
        if int.from_bytes(frames[-1][1], "big") == last_sequence and not socket.poll(50):
            break
    return frames


def test_every_sources_bytes_agree_with_its_truth(tmp_path: Path) -> None:
    settings = replace(
        SMALL,
        replicas=3,
        dp_ranks=2,
        eras=("vllm-0.33", "vllm-0.22", "sglang-0.5.23"),
        engine=replace(SMALL.engine, cpu_blocks=150),
        addresses=AddressPlan(base_port=1, metrics_port=None),
        truth_directory=tmp_path,
        snapshot_sequences=frozenset({5}),
    )
    with _opened(settings) as fleet, _subscribed(fleet) as sockets:
        for step in range(600):
            fleet.advance(0.05, 1_800_000_000 + step * 0.05)
        fleet.write_truth()
        assert fleet.dispatch.rejected == 0
        for source, socket in zip(fleet.sources, sockets, strict=True):
            truth = json.loads((tmp_path / f"{source.replica}-dp{source.rank}.truth.json").read_text())
            (life,) = truth["lives"]
            assert truth["checkpoint_columns"] == list(CHECKPOINT_COLUMNS)
            counts = ReferenceCounts()
            frames = _received(socket, life["last_seq"])
            assert [int.from_bytes(frame[1], "big") for frame in frames] == list(range(life["last_seq"] + 1))
            assert life["last_seq"] > 20
            for frame, row in zip(frames, life["checkpoints"], strict=True):
                assert msgspec.msgpack.decode(frame[2])[2] == source.rank
                counts.apply(frame[2])
                sequence, distinct, physical, cpu, _fine = row
                gpu = [copies for (medium, _, _), copies in counts.copies.items() if medium == "gpu"]
                assert (len(gpu), sum(gpu)) == (distinct, physical)
                assert len(counts.copies) - len(gpu) == cpu
                if sequence == 5:
                    assert counts.rows("gpu") == life["snapshots"]["5"]["resident"]["gpu"]
            assert counts.rows("gpu") == life["resident"]["gpu"]
            assert counts.rows("cpu") == life["resident"]["cpu"]
            assert life["counters"]["evicted_blocks"] > 0
            assert life["counters"]["hits"] > 0


def test_equal_settings_publish_equal_bytes() -> None:
    def published() -> list[tuple[int, int | None, dict[str, Any]]]:
        with _opened(SMALL) as fleet:
            _steps(fleet, 200)
            return [(s.rank, s.publisher.last_sequence, s.truth()) for s in fleet.sources]

    assert published() == published()


def test_replicas_share_hashes_unless_their_seeds_are_random() -> None:
    def shared(settings: FleetSettings) -> int:
        with _opened(settings) as fleet:
            _steps(fleet, 200)
            first, second = ({key for key, _ in s.engine.pool.copies()} for s in fleet.sources)
            return len(first & second)

    assert shared(SMALL) > 5
    assert shared(replace(SMALL, random_hash_seeds=True)) == 0


def test_a_restarted_source_begins_a_new_life() -> None:
    with _opened(replace(SMALL, replicas=1)) as fleet, _subscribed(fleet) as (socket,):
        (source,) = fleet.sources
        for step in range(150):
            if step == 75:
                old = source.publisher.last_sequence
                source.restart()
            fleet.advance(0.05, step * 0.05)
        first, second = source.truth()["lives"]
        assert first["last_seq"] == old
        frames = _received(socket, second["last_seq"])
        starts = [i for i, frame in enumerate(frames) if not int.from_bytes(frame[1], "big")]
        assert starts == [0, (old or 0) + 1]
        for life, part in ((first, frames[: starts[1]]), (second, frames[starts[1] :])):
            counts = ReferenceCounts()
            for frame in part:
                counts.apply(frame[2])
            assert counts.rows("gpu") == life["resident"]["gpu"]


def test_dropped_batches_can_be_replayed() -> None:
    with _opened(replace(SMALL, replicas=1, eras=("vllm-0.24",))) as fleet, _subscribed(fleet) as (socket,):
        (source,) = fleet.sources
        source.publisher.drop_next(3)
        _steps(fleet, 60)
        frames = _received(socket, source.publisher.last_sequence)
        assert int.from_bytes(frames[0][1], "big") == 3
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.connect(source.publisher.replay_endpoint or "")
            dealer.send_multipart([b"", bytes(8)])
            replayed = [dealer.recv_multipart() for _ in range(len(frames) + 4)]
        assert [frame[1:] for frame in replayed[3:-1]] == [frame[1:] for frame in frames]
        assert all(len(frame) == 3 for frame in replayed)


def test_hybrid_replicas_announce_two_granularities() -> None:
    settings = replace(
        SMALL,
        hybrid_replicas=1,
        eras=("vllm-0.9",),
        workload=replace(TRAFFIC, mean_user_tokens=600, max_prompt_tokens=9000),
        engine=EngineSettings(num_blocks=1200, decode_tokens=8),
    )
    with _opened(settings) as fleet, _subscribed(fleet) as sockets:
        assert [source.era.name for source in fleet.sources] == ["vllm-0.9", "vllm-0.33"]
        _steps(fleet, 400)
        plain, hybrid = (
            {
                (event.get("group_idx"), event["block_size"])
                for frame in _received(socket, source.publisher.last_sequence)
                for event in events_of(frame[2])
                if event["type"] == "BlockStored"
            }
            for socket, source in zip(sockets, fleet.sources, strict=True)
        )
    assert plain == {(None, 16)}
    assert hybrid == {(0, 2176), (0, 64), (1, 2176)}


def test_the_written_config_is_a_valid_one_and_its_metrics_are_the_counters() -> None:
    settings = replace(SMALL, replicas=2, dp_ranks=2, addresses=AddressPlan(base_port=1, metrics_port=0))
    with _opened(settings) as fleet:
        text = replicas_toml(fleet.addresses())
        replicas = msgspec.convert(tomllib.loads(text), Settings).replicas
        assert [(replica.id, replica.dp_ranks) for replica in replicas] == [("sim-0", 2), ("sim-1", 2)]
        ports = [int(replica.endpoint.rpartition(":")[2]) for replica in replicas]
        assert ports[1] == ports[0] + 2
        assert [source.publisher.endpoint for source in fleet.sources] == [
            f"tcp://127.0.0.1:{ports[0] + rank}" for rank in range(4)
        ]
        _steps(fleet, 100)
        with urllib.request.urlopen(replicas[1].metrics_url or "", timeout=60) as answer:
            text = answer.read().decode()
        values = {
            (sample.name, sample.labels["engine"]): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        for source in fleet.sources[2:]:
            counters = source.truth()["lives"][0]["counters"]
            assert counters["queries"] > 0
            for name, field in (("prefix_cache_queries", "queries"), ("prefix_cache_hits", "hits")):
                assert values[f"vllm:{name}_total", str(source.rank)] == counters[field]


def test_real_time_pacing_keeps_the_step_rate_and_stops() -> None:
    steps: list[float] = []

    def clock() -> float:
        steps.append(time.monotonic())
        return time.time()

    rate = SMALL.steps_per_second
    with _opened(SMALL) as fleet:
        began = time.monotonic()
        fleet.run(duration_seconds=1.0, clock=clock)
        took = time.monotonic() - began
        assert all(at - began > number / rate - 0.01 for number, at in enumerate(steps, 1))
        # Of the steps that a busy machine misses it makes up for one second's.
        assert rate * (2.0 - took) - 1 <= len(steps) <= rate + 1
        fleet.stop()
        taken = len(steps)
        fleet.run(duration_seconds=1.0, clock=clock)
        assert len(steps) == taken


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (AddressPlan(base_port=0), "consecutive ports"),
        (AddressPlan(base_port=20_000, replay_base_port=20_001), "overlap"),
    ],
)
def test_impossible_addresses_are_refused(plan: AddressPlan, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        plan.endpoints(0, replicas=2, dp_ranks=2)


def test_decode_replicas_store_what_prefill_replicas_computed_before() -> None:
    settings = replace(SMALL, replicas=3, prefill_replicas=1)
    with _opened(settings) as fleet, _subscribed(fleet) as sockets:
        for step in range(400):
            fleet.advance(0.05, 1_800_000_000 + step * 0.05)
        assert fleet.dispatch.rejected == 0
        assert [address.role for address in fleet.addresses()] == ["prefill", "decode", "decode"]
        tables = tomllib.loads(replicas_toml(fleet.addresses()))["replicas"]
        assert {[*table][-1] for table in tables} == {"hash_scheme"}, "who reads along sees when one is whole"
        first = {}
        pulled = 0
        for source, socket in zip(fleet.sources, sockets, strict=True):
            for frames in _received(socket, source.publisher.last_sequence):
                time, events, *_ = msgspec.msgpack.decode(frames[2])
                for event in events:
                    if event["type"] != "BlockStored":
                        continue
                    for block in event["block_hashes"]:
                        # Later than the prefill replica, or generated by this one.
                        pulled += source is not fleet.sources[0] and first.get(block, time) < time
                        if source is fleet.sources[0]:
                            first.setdefault(block, time)
        counters = [source.engine.counters for source in fleet.sources]
        assert counters[0].computed > 0 == counters[0].pulled
        assert [each.computed for each in counters[1:]] == [0, 0]
        blocks = settings.engine.block_size
        assert pulled * blocks > 0.8 * sum(each.pulled for each in counters[1:]) > 0


def test_somebody_has_to_decode() -> None:
    for wrong, reason in (
        ({"prefill_replicas": 2}, "some have to decode"),
        ({"prefill_replicas": 1, "hybrid_replicas": 1}, "none can be hybrid"),
    ):
        with pytest.raises(ValueError, match=reason):
            Fleet(replace(SMALL, replicas=2, **wrong))
