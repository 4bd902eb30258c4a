"""Two engines lie in ways that once stopped every worker; an honest one beside them loses nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.support.inputs.captures import captured_frames, captured_truth

pytestmark = pytest.mark.night

HONEST = "vllm-0.33.0-map"
SIZES = 1500
"""Block sizes, each of which once cost more than all before it together."""
GROUPS = 6_000
"""Groups; ten times as many once were too large a state for one record of a checkpoint."""


def payloads(batches: list[list[Any]]) -> list[bytes]:
    """Of one window, an hour ago: its minute and hour are over."""
    at = time.time() // 3600 * 3600 - 3595
    return [msgspec.msgpack.encode([at, events, 0]) for events in batches]


def block_sizes() -> list[bytes]:
    """A new block size in every event."""
    rng = random.Random(1)
    events = [
        ["BlockStored", [rng.getrandbits(64)], None, [], 1_000_003 + 2 * number, None, "GPU"]
        for number in range(SIZES)
    ]
    return payloads([events[first : first + 500] for first in range(0, SIZES, 500)])


def groups() -> list[bytes]:
    """A new group in every event."""
    rng = random.Random(2)
    events = [
        ["BlockStored", [rng.getrandbits(64)], None, [], 16, None, "GPU", None, None, number]
        for number in range(GROUPS)
    ]
    return payloads([events[first : first + 1000] for first in range(0, GROUPS, 1000)])


@pytest.fixture(scope="module")
def beside(new_pipeline: Callable[..., Any]) -> Any:
    """The pipeline after all three; every round of the worker was committed, or it would have ended."""
    pipeline = new_pipeline(HONEST, "sizes", "groups")
    worker, connector = pipeline.start("work"), pipeline.start("connect")
    pipeline.wait_subscribed()
    honest = captured_frames(HONEST)
    lies = {"sizes": block_sizes(), "groups": groups()}
    for name, messages in lies.items():
        for seq, payload in enumerate(messages):
            pipeline.publish(name, [b"kv-events", seq.to_bytes(8, "big"), payload])
    for parts in honest:
        pipeline.publish(HONEST, parts)
    pipeline.wait_batches({HONEST: len(honest)} | {name: len(sent) for name, sent in lies.items()})
    most = pipeline.settings.worker.max_pool_sizes
    pipeline.wait_rows(
        "SELECT replica, sum(filled_blocks) FROM {}.fills_1m FINAL "
        "WHERE replica IN ('sizes', 'groups') GROUP BY 1",
        dict.fromkeys(lies, most),
    )
    page = pipeline.metrics("worker")
    pipeline.finish(connector, worker)
    return pipeline, page


def test_every_process_lived_and_the_honest_engine_is_exact(beside: Any) -> None:
    pipeline, _ = beside
    assert [process.process.returncode for process in pipeline.processes] == [0, 0]
    truth = captured_truth(HONEST)
    copies = [row[2] for row in truth["final_cached"]]
    found = pipeline.latest_occupancy()
    assert found[HONEST, "gpu", 0][:2] == (sum(copies), len(copies))
    assert found[HONEST, "gpu", 0][3] == "complete"


def test_both_liars_are_limited_and_it_says_so(beside: Any) -> None:
    pipeline, page = beside
    most = pipeline.settings.worker.max_pool_sizes
    rows = pipeline.query(
        "SELECT replica, uniqExact(group_idx, block_size), toString(max(trust)) FROM {}.occupancy_10s FINAL "
        "WHERE model = 'm' AND trust != 'complete' GROUP BY replica ORDER BY replica"
    )
    assert rows == [("groups", most, "degraded"), ("sizes", most, "degraded")]
    left_out = GROUPS + SIZES - 2 * most
    pipeline.wait_rows(
        "SELECT 'all', sum(undecodable_events) FROM {}.stream_health_10s FINAL", {"all": left_out}
    )
    assert f'kvlens_worker_left_out_events_total{{reason="too_many_sizes"}} {left_out}.0' in page
