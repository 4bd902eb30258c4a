"""Simulated replicas of which some compute prompts that others pull, from sockets to tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from pipeline.simulator.addresses import AddressPlan
from pipeline.simulator.engine.settings import EngineSettings
from pipeline.simulator.fleet import Fleet, FleetSettings
from pipeline.simulator.traffic.workload import WorkloadSettings
from schemas.discovery_settings import Replica
from tests.support.processes import as_toml

pytestmark = pytest.mark.night

PREFILLING, REPLICAS = 2, 4
SECONDS = 15.0
SETTINGS = FleetSettings(
    replicas=REPLICAS,
    prefill_replicas=PREFILLING,
    engine=EngineSettings(cpu_blocks=300),
    blocks=(200, 200, 250, 250),
    workload=WorkloadSettings(
        seed=5,
        rate=8.0,
        system_prompts=3,
        system_prompt_tokens=200,
        mean_user_tokens=80,
        mean_output_tokens=30,
        max_prompt_tokens=1_200,
        mean_think_seconds=3.0,
        # Word for word the same request has the same answer, which then looks as if it had been pulled.
        canned_share=0.0,
    ),
    addresses=AddressPlan(base_port=0, metrics_port=0),
)


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    made = Fleet(SETTINGS)
    yield made
    made.close()


@pytest.fixture(scope="module")
def tables(new_pipeline: Callable[..., Any], fleet: Fleet) -> dict[str, dict[str, int]]:
    """Sums of the fills of each replica at the end, and what its engine counted; the log was recounted."""
    pipeline = new_pipeline()
    replicas = tuple(
        Replica(
            id=address.id,
            model=address.model,
            endpoint=address.endpoint,
            replay_endpoint=address.replay_endpoint,
            metrics_url=address.metrics_url,
            hash_scheme=address.hash_scheme,
            role=address.role or "",
        )
        for address in fleet.addresses()
    )
    pipeline.settings = msgspec.structs.replace(pipeline.settings, replicas=replicas)
    (pipeline.directory / "kvlens.toml").write_text(as_toml(pipeline.settings))
    connector, worker = pipeline.start("connect"), pipeline.start("work")
    assert fleet.wait_subscribers(120)
    fleet.run(SECONDS)
    while any(source.engine.busy for source in fleet.sources):
        fleet.advance(0.0, time.time())
    filled = {
        source.replica: source.engine.counters.stored_blocks - source.engine.counters.duplicate_blocks
        for source in fleet.sources
    }
    pipeline.wait_rows("SELECT replica, sum(filled_blocks) FROM {}.fills_10s FINAL GROUP BY 1", filled, 120)
    pulled = {source.replica: source.engine.counters.pulled for source in fleet.sources}
    pipeline.wait_rows(
        "SELECT replica, argMax(transferred_tokens, time) FROM {}.engine_counters FINAL GROUP BY 1",
        pulled,
        120,
    )
    found = pipeline.dicts(
        "SELECT replica, sum(transferred_tokens) AS transferred, sum(promoted_tokens) AS promoted, "
        "sum(peer_tokens + peer_and_evicted_tokens + evicted_tokens + evicted_elsewhere_tokens "
        "+ cleared_tokens) AS avoidable FROM {}.fills_10s FINAL GROUP BY replica"
    )
    pipeline.finish(connector, worker)
    return {row["replica"]: row for row in found}


def test_what_is_pulled_is_transferred_and_nothing_of_it_avoidable(
    fleet: Fleet, tables: dict[str, dict[str, int]]
) -> None:
    for source in fleet.sources[PREFILLING:]:
        counters, row = source.engine.counters, tables[source.replica]
        assert (counters.computed, row["avoidable"], row["promoted"]) == (0, 0, 0)
        # Less: what two requests pull at a time is filled once, and part of a block at a prompt's end when
        # the answer has filled it. More: an answer that the next prompt of an impatient client had.
        assert row["transferred"] == pytest.approx(counters.pulled, rel=0.1)


def test_who_computes_prompts_gets_them_from_its_cpu_tier_and_not_by_transfer(
    fleet: Fleet, tables: dict[str, dict[str, int]]
) -> None:
    for source in fleet.sources[:PREFILLING]:
        counters, row = source.engine.counters, tables[source.replica]
        assert row["transferred"] == counters.pulled == 0
        # What it loads, and what it holds behind a block that it lacks.
        assert 0 < counters.external_hits <= row["promoted"] < counters.queries
        # What both computed, and answers that came back in the next prompt.
        assert 0 < row["avoidable"] < counters.computed
