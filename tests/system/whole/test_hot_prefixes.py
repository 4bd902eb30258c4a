"""Shared system prompts of simulated engines through the whole pipeline: named, and how much is shared."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import takewhile
from typing import Any

import msgspec
import pytest

from pipeline.simulator.addresses import AddressPlan
from pipeline.simulator.engine.settings import EngineSettings
from pipeline.simulator.fleet import Fleet, FleetSettings
from pipeline.simulator.traffic.workload import WorkloadSettings, arrivals
from pipeline.simulator.wire.hashing import chain_digests, seed_digest
from schemas.discovery_settings import Replica
from tests.support.processes import as_toml

pytestmark = pytest.mark.night

BLOCK = 16
STEP = 0.25
TRAFFIC = WorkloadSettings(
    seed=3,
    rate=12.0,
    system_prompts=3,
    system_prompt_tokens=200,
    mean_user_tokens=60,
    mean_output_tokens=40,
    mean_think_seconds=3.0,
    lora_share=0.3,
)
SETTINGS = FleetSettings(
    replicas=3,
    engine=EngineSettings(num_blocks=500, decode_tokens=8),
    workload=TRAFFIC,
    addresses=AddressPlan(base_port=0, metrics_port=None),
)

Prefix = tuple[str, int]
"""LoRA and hash of the first block."""


def chains(seconds: float) -> dict[bytes, tuple[Prefix, int]]:
    """Prefix and depth of every block that the traffic of so many seconds can make."""
    found = {}
    for _, request in takewhile(lambda arrival: arrival[0] <= seconds, arrivals(TRAFFIC)):
        lora = request.lora.name if request.lora else ""
        digests = chain_digests(seed_digest("0"), request.prompt + request.output, BLOCK, lora or None)
        for depth, digest in enumerate(digests, 1):
            found[digest] = ((lora, int.from_bytes(digests[0][-8:], "big")), depth)
    return found


def held_by_several(fleet: Fleet, chains: dict[bytes, tuple[Prefix, int]]) -> dict[Prefix, tuple[int, ...]]:
    """Shared and duplicated tokens and most owners of each prefix, as the engines have it."""
    owners = Counter(digest for source in fleet.sources for (_, digest), _ in source.engine.pool.copies())
    figures: defaultdict[Prefix, list[int]] = defaultdict(lambda: [0, 0, 0])
    for digest, count in owners.items():
        if count > 1:
            of = figures[chains[digest][0]]
            of[0] += BLOCK
            of[1] += BLOCK * (count - 1)
            of[2] = max(of[2], count)
    return {prefix: tuple(each) for prefix, each in figures.items()}


def test_shared_system_prompts_are_the_hot_prefixes(new_pipeline: Callable[..., Any]) -> None:
    pipeline, fleet = new_pipeline(), Fleet(SETTINGS)
    replicas = tuple(
        Replica(id=each.id, model="m", endpoint=each.endpoint, hash_scheme=each.hash_scheme)
        for each in fleet.addresses()
    )
    pipeline.settings = msgspec.structs.replace(pipeline.settings, replicas=replicas)
    (pipeline.directory / "kvlens.toml").write_text(as_toml(pipeline.settings))
    connector, worker = pipeline.start("connect"), pipeline.start("work")
    try:
        assert fleet.wait_subscribers(60)
        began = time.time() // 10 * 10 - 60
        elapsed, batches = 0.0, 0

        def play(seconds: float) -> None:
            """Return when both agents have written what so much traffic gives."""
            nonlocal elapsed, batches
            for _ in range(int(seconds / STEP)):
                elapsed += STEP
                batches += fleet.advance(STEP, began + elapsed)
            pipeline.wait_rows("SELECT 1, sum(batches) FROM {}.stream_health_10s FINAL", {1: batches})
            counters = [source.engine.counters for source in fleet.sources]
            filled = sum(each.stored_blocks - each.duplicate_blocks for each in counters)
            pipeline.wait_rows("SELECT 1, sum(filled_blocks) FROM {}.fills_10s FINAL", {1: filled})

        play(29.0)
        known = chains(elapsed)
        truth = held_by_several(fleet, known)
        elapsed += 5.0  # no traffic, so that the next change of each shard closes the window
        play(5.0)
        where = "window <= toDateTime({at}, 'UTC')".replace("{at}", str(int(began + 20)))
        rows = pipeline.query(
            "SELECT lora, prefix, sum(shared_tokens), sum(duplicated_tokens), max(owners) "
            f"FROM {{}}.hot_prefixes_10s FINAL WHERE window = toDateTime({int(began + 20)}, 'UTC') "
            "GROUP BY lora, prefix HAVING sum(duplicated_tokens) > 0"
        )
        assert {(lora, prefix): tuple(figures) for lora, prefix, *figures in rows} == truth
        assert {lora for lora, _ in truth} == {"", *TRAFFIC.loras}
        assert {prefix for prefix, _ in known.values()} >= set(truth)
        assert len([lora for lora, _ in truth if not lora]) == TRAFFIC.system_prompts
        [(refilled, missing)] = pipeline.query(
            "SELECT sum(refilled_tokens), max(refilled_tokens_missing) "
            f"FROM {{}}.hot_prefixes_10s FINAL WHERE {where}"
        )
        causes = ("peer", "peer_and_evicted", "evicted", "evicted_elsewhere", "cleared")
        [(avoidable,)] = pipeline.query(
            f"SELECT sum({' + '.join(f'{cause}_tokens' for cause in causes)}) "
            f"FROM {{}}.fills_10s FINAL WHERE {where}"
        )
        assert refilled == avoidable > 0 == missing
        view = pipeline.dicts(
            f"SELECT * FROM {{}}.hot_prefixes(from = '{_utc(began)}', to = '{_utc(began + 29)}')"
        )
        assert {(row["lora"], int(row["first_block"], 16)) for row in view} >= set(truth)
        for row in view:
            prefix = (row["lora"], int(row["first_block"], 16))
            assert row["depth_blocks"] <= max(depth for of, depth in known.values() if of == prefix)
            if prefix in truth:
                assert row["depth_blocks"] >= TRAFFIC.system_prompt_tokens // BLOCK
        pipeline.finish(connector, worker)
    finally:
        fleet.close()


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
