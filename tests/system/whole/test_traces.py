"""A request trace over fleets: hit rates, causes of fills and the capacity curve are what they must be.

`KVLENS_TRACE` names a trace in Mooncake's format; the default is the beginning of the conversation trace.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pipeline.simulator.addresses import AddressPlan
from pipeline.simulator.trace_fleet import TraceFleet, TraceFleetSettings
from pipeline.traces.reading import read_trace
from pipeline.traces.trace import TraceRequest
from schemas.discovery_settings import Replica
from schemas.settings import Fleet, Model
from tests.support.checkout import ROOT
from tests.support.processes import as_toml

pytestmark = pytest.mark.night

TRACE = Path(
    os.environ.get("KVLENS_TRACE", ROOT / "tests/data/simulator/mooncake_conversation_1500.jsonl.gz")
)
BLOCK = 512
BYTES = 1000
SPEED, GPUS, PRICE = 8192.0, 4.0, 2.5
"""Prompt tokens a second and GPUs of a replica, price of a GPU's hour: made up."""
Size = tuple[int, "int | None"]
"""Replicas and blocks of each, None for endless."""
FLEETS: dict[str, Size] = {
    "one": (1, None),
    "two": (2, None),
    "four": (4, None),
    "eight": (8, None),
    "small": (1, 2500),
    "small-two": (2, 1500),
}
"""By model; a cache that cannot hold the trace's longest request is made as large as that."""
ROLES, PREFILLING, DECODING = "roles", 2, 2
"""One more model, of which some replicas compute prompts that the others pull."""
POINTS = 0.001
"""A tenth of a percentage point of the queried blocks."""


say = logging.getLogger(__name__).info


@dataclass
class Truth:
    """What caches do to a trace, by the book.

    Only prefixes are hit. A request keeps what it hits, then makes room for what it misses: the least
    recently used goes, of one request the tail first.
    """

    queried: int = 0
    hits: int = 0

    @property
    def hit_rate(self) -> float:
        return self.hits / self.queried


def played(requests: Sequence[TraceRequest], replicas: int, budget: int | None) -> Truth:
    caches: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(replicas)]
    truth = Truth()
    for number, request in enumerate(requests):
        cache = caches[number % replicas]
        ids = request.hash_ids
        hits = next((place for place, block in enumerate(ids) if block not in cache), len(ids))
        truth.queried += len(ids)
        truth.hits += hits
        for block in ids[:hits]:
            cache.move_to_end(block)
        while budget is not None and len(cache) + len(ids) - hits > budget:
            cache.popitem(last=False)
        for block in reversed(ids):
            cache[block] = None
            cache.move_to_end(block)
    return truth


@pytest.fixture(scope="module")
def requests() -> list[TraceRequest]:
    return read_trace(TRACE).requests


@pytest.fixture(scope="module")
def sizes(requests: list[TraceRequest]) -> dict[str, Size]:
    longest = max(len(request.hash_ids) for request in requests)
    return {
        model: (replicas, None if budget is None else max(budget, longest))
        for model, (replicas, budget) in FLEETS.items()
    }


@pytest.fixture(scope="module")
def fleets(sizes: dict[str, Size]) -> Iterator[dict[str, TraceFleet]]:
    made = {
        model: TraceFleet(
            TraceFleetSettings(
                block_size=512,
                replicas=replicas,
                budget=budget,
                model=model,
                addresses=AddressPlan(base_port=0, metrics_port=None),
            )
        )
        for model, (replicas, budget) in sizes.items()
    }
    made[ROLES] = TraceFleet(
        TraceFleetSettings(
            block_size=512,
            replicas=PREFILLING + DECODING,
            prefill_replicas=PREFILLING,
            budget=sizes["small-two"][1],
            model=ROLES,
            addresses=AddressPlan(base_port=0, metrics_port=None),
        )
    )
    yield made
    for fleet in made.values():
        fleet.stop()
        fleet.close()


@pytest.fixture(scope="module")
def tables(
    new_pipeline: Callable[..., Any], fleets: dict[str, TraceFleet], requests: list[TraceRequest]
) -> dict[str, dict[str, int]]:
    """Sums of `fills_10s` by model, and what the views make of it, at the end of all traces."""
    pipeline = new_pipeline()
    replicas = tuple(
        Replica(
            id=f"{model}-{address.id}",
            model=model,
            endpoint=address.endpoint,
            replay_endpoint=address.replay_endpoint,
            hash_scheme=address.hash_scheme,
            role=address.role or "",
        )
        for model, fleet in fleets.items()
        for address in fleet.addresses()
    )
    models = tuple(Model(model, BYTES, SPEED, GPUS, PRICE, "EUR") for model in fleets)
    span = requests[-1].seconds - requests[0].seconds
    pipeline.settings = msgspec.structs.replace(
        pipeline.settings,
        replicas=replicas,
        models=models,
        fleet=Fleet(horizon_seconds=max(3600.0, span + 600)),
    )
    (pipeline.directory / "kvlens.toml").write_text(as_toml(pipeline.settings))
    connector, worker = pipeline.start("connect"), pipeline.start("work")
    assert all(fleet.wait_subscribers(60) for fleet in fleets.values())
    began = time.time()
    players = [threading.Thread(target=fleet.play, args=(requests,)) for fleet in fleets.values()]
    for player in players:
        player.start()
    for player in players:
        player.join(300)
    stored = {
        model: sum(replica.counters.stored_blocks for replica in fleet.replicas)
        for model, fleet in fleets.items()
    }
    pipeline.wait_rows("SELECT model, sum(filled_blocks) FROM {}.fills_10s FINAL GROUP BY 1", stored, 240)
    say(f"{len(requests)} requests over {len(replicas)} replicas in {time.time() - began:.1f} s")
    window = f"(from = '{_utc(began - span - 3600)}', to = '{_utc(began + 600)}')"
    found = {row["model"]: row for row in pipeline.dicts(_sums())}
    played_in = f"from = '{_utc(began - span - 60)}', to = '{_utc(began + 600)}'"
    for model in fleets:
        found[model]["findings"] = pipeline.dicts(
            f"SELECT * FROM {{}}.findings({played_in}) WHERE model = '{model}'"
        )
        found[model]["answer"] = pipeline.dicts(
            f"SELECT * FROM {{}}.answer({played_in}, models = ['{model}']) ORDER BY place"
        )
        found[model]["potential"] = pipeline.dicts(
            f"SELECT * FROM {{}}.hit_potential{window} WHERE model = '{model}'"
        )
        found[model]["costs"] = pipeline.dicts(
            f"SELECT * FROM {{}}.prefill_costs{window} WHERE model = '{model}' AND tokens > 0"
        )
        found[model]["gain"] = pipeline.dicts(
            f"SELECT * FROM {{}}.capacity_gain{window} WHERE model = '{model}' ORDER BY extra_tokens"
        )
        found[model]["unique"] = pipeline.query(
            "SELECT sum(last.1), sum(last.2) FROM (SELECT argMax((unique_tokens, physical_tokens), window) "
            f"AS last FROM {{}}.redundancy_10s FINAL WHERE model = '{model}' GROUP BY shard)"
        )[0]
    pipeline.finish(connector, worker)
    return found


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))


CAUSES = (
    "promoted",
    "transferred",
    "generated",
    "peer",
    "peer_and_evicted",
    "evicted",
    "evicted_elsewhere",
    "cleared",
    "cold",
    "unknown",
)


def _sums() -> str:
    names = ["filled_blocks", "reannounced_blocks", *(f"{cause}_blocks" for cause in CAUSES)]
    sums = ", ".join(f"sum({name}) AS {name}" for name in names)
    return f"SELECT model, {sums} FROM {{}}.fills_10s FINAL GROUP BY model"


@pytest.mark.parametrize("model", ["two", "four", "eight"])
def test_with_endless_memory_peers_cost_what_one_cache_would_have_hit(
    model: str, tables: dict[str, Any], requests: list[TraceRequest]
) -> None:
    one, own = played(requests, 1, None), played(requests, *FLEETS[model])
    found = tables[model]
    lost = one.hit_rate - own.hit_rate
    say(f"{model}: hit rate {own.hit_rate:.4%}, of one cache {one.hit_rate:.4%}")
    say(f"{model}: peers {found['peer_blocks'] / own.queried:.4%}, lost {lost:.4%}")
    assert 1 - found["filled_blocks"] / own.queried == pytest.approx(own.hit_rate, abs=POINTS)
    assert found["peer_blocks"] / own.queried == pytest.approx(lost, abs=POINTS)
    assert found["cold_blocks"] / own.queried == pytest.approx(1 - one.hit_rate, abs=POINTS)
    assert found["filled_blocks"] == found["peer_blocks"] + found["cold_blocks"]


def test_with_a_budget_evictions_cost_what_endless_memory_would_have_hit(
    tables: dict[str, Any], requests: list[TraceRequest], sizes: dict[str, Size]
) -> None:
    endless, own = played(requests, 1, None), played(requests, *sizes["small"])
    found = tables["small"]
    lost = endless.hit_rate - own.hit_rate
    say(
        f"small: hit rate {own.hit_rate:.4%}, evicted {found['evicted_blocks'] / own.queried:.4%}, {lost:.4%}"
    )
    assert 1 - found["filled_blocks"] / own.queried == pytest.approx(own.hit_rate, abs=POINTS)
    assert found["evicted_blocks"] / own.queried == pytest.approx(lost, abs=POINTS)
    assert found["filled_blocks"] == found["evicted_blocks"] + found["cold_blocks"]


@pytest.mark.parametrize("model", ["small", "small-two"])
def test_the_curve_never_promises_more_than_larger_caches_save(
    model: str, tables: dict[str, Any], requests: list[TraceRequest], sizes: dict[str, Size]
) -> None:
    replicas, budget = sizes[model]
    assert budget is not None
    own = played(requests, replicas, budget)
    of_replica: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for row in tables[model]["gain"]:
        assert row["extra_bytes"] == BYTES * row["extra_tokens"]
        of_replica[row["replica"]][row["extra_tokens"]] = row["saved_tokens"]
    steps = sorted({extra for saved in of_replica.values() for extra in saved if extra >= BLOCK})
    promised = 0
    for extra in steps:
        # A replica's rows end where more cache promises no more.
        tokens = sum(
            max((n for e, n in saved.items() if e <= extra), default=0) for saved in of_replica.values()
        )
        promised, saved = tokens // BLOCK, played(requests, replicas, budget + extra // BLOCK).hits - own.hits
        say(f"{model}: +{extra} tokens each: at least {promised} blocks, really {saved}")
        assert promised <= saved
    found = tables[model]
    assert promised == found["evicted_blocks"] + found["peer_and_evicted_blocks"]
    # Endless caches save just that.
    lost = played(requests, replicas, None).hits - own.hits
    assert promised == pytest.approx(lost, abs=POINTS * own.queried)


@pytest.mark.parametrize("model", FLEETS)
def test_causes_add_up_and_ideals_are_in_order(
    model: str, tables: dict[str, Any], requests: list[TraceRequest]
) -> None:
    found = tables[model]
    assert found["filled_blocks"] == sum(found[f"{cause}_blocks"] for cause in CAUSES)
    assert found["reannounced_blocks"] == found["unknown_blocks"] == 0
    blocks: defaultdict[str, int] = defaultdict(int)
    for row in found["potential"]:
        assert row["trust"] == "complete"
        for name in ("filled_tokens", "avoidable_tokens", "cold_tokens"):
            blocks[name] += row[name]
    # What the whole fleet could have hit with one endless cache is what the trace allows.
    queried = sum(len(request.hash_ids) for request in requests)
    one = played(requests, 1, None)
    hits = queried - found["filled_blocks"]
    assert (hits + blocks["avoidable_tokens"] // BLOCK) / queried == pytest.approx(one.hit_rate, abs=POINTS)
    assert blocks["filled_tokens"] == blocks["avoidable_tokens"] + blocks["cold_tokens"]
    if FLEETS[model][1] is None:
        unique, physical = found["unique"]
        assert unique == BLOCK * len({block for request in requests for block in request.hash_ids})
        assert physical == found["filled_blocks"] * BLOCK


def test_where_replicas_have_roles_it_adds_up_and_is_recounted(
    tables: dict[str, Any], fleets: dict[str, TraceFleet]
) -> None:
    """Which replica comes first is not sure where an hour is played in seconds; `tables` recounts the log."""
    found = tables[ROLES]
    prefill, decode = fleets[ROLES].replicas[:PREFILLING], fleets[ROLES].replicas[PREFILLING:]
    assert found["filled_blocks"] == sum(found[f"{cause}_blocks"] for cause in CAUSES)
    assert found["filled_blocks"] == sum(each.counters.stored_blocks for each in (*prefill, *decode))
    assert 0 < found["transferred_blocks"] <= sum(each.counters.stored_blocks for each in decode)


@dataclass
class Lost:
    """Blocks that were computed although they had been before, and what they cost."""

    routing: int = 0
    capacity: int = 0
    either: int = 0
    """Another replica had it, and it was evicted here."""
    elsewhere: int = 0
    """Only others had it, and evicted it."""

    @property
    def blocks(self) -> int:
        return self.routing + self.capacity + self.either + self.elsewhere


def counted(requests: Sequence[TraceRequest], replicas: int, budget: int | None) -> Lost:
    """Count block by block what round robin over such caches loses, by plain sets of who had and has what."""
    caches: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(replicas)]
    had: list[set[int]] = [set() for _ in range(replicas)]
    lost = Lost()
    for number, request in enumerate(requests):
        here = number % replicas
        cache, ids = caches[here], request.hash_ids
        hits = next((place for place, block in enumerate(ids) if block not in cache), len(ids))
        for block in ids[:hits]:
            cache.move_to_end(block)
        while budget is not None and len(cache) + len(ids) - hits > budget:
            cache.popitem(last=False)
        for block in (block for block in ids[hits:] if block not in cache):
            held = any(block in other for place, other in enumerate(caches) if place != here)
            lost.either += held and block in had[here]
            lost.routing += held and block not in had[here]
            lost.capacity += not held and block in had[here]
            lost.elsewhere += not held and block not in had[here] and any(block in each for each in had)
        for block in reversed(ids):
            cache[block] = None
            cache.move_to_end(block)
        had[here].update(ids)
    return lost


@pytest.mark.parametrize("model", FLEETS)
def test_what_is_lost_costs_what_counting_block_by_block_says(
    model: str, tables: dict[str, Any], requests: list[TraceRequest], sizes: dict[str, Size]
) -> None:
    """Which replica comes first decides whether another one still held a block: where they also evict, an
    hour of trace in seconds is too quick for the causes one by one (docs/figures.md, What is counted)."""
    lost, own = counted(requests, *sizes[model]), played(requests, *sizes[model])
    replicas, budget = sizes[model]
    wanted: dict[tuple[str, ...], int] = {
        ("peer", "evicted_elsewhere"): lost.routing + lost.elsewhere,
        ("peer_and_evicted", "evicted"): lost.either + lost.capacity,
    }
    if replicas == 1 or budget is None:
        wanted = {
            ("peer",): lost.routing,
            ("peer_and_evicted",): lost.either,
            ("evicted",): lost.capacity,
            ("evicted_elsewhere",): lost.elsewhere,
        }
    rows = tables[model]["costs"]
    blocks: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        assert (row["kind"], row["rate_basis"], row["currency"]) == ("lost", "assumed", "EUR")
        assert (row["tenant"], row["tokens_without_rate"], row["unpriced_tokens"]) == ("default", 0, 0)
        assert row["gpu_seconds"] == pytest.approx(row["tokens"] / SPEED * GPUS)
        assert row["cost"] == pytest.approx(row["gpu_seconds"] / 3600 * PRICE)
        blocks[row["cause"]] += row["tokens"] / BLOCK
    say(f"{model}: lost {dict(blocks)}, counted {wanted}")
    for causes, count in wanted.items():
        of_causes = sum(blocks[cause] for cause in causes)
        assert of_causes / own.queried == pytest.approx(count / own.queried, abs=POINTS), causes
    found = sum(row["cost"] for row in rows)
    counted_cost = lost.blocks * BLOCK / SPEED * GPUS / 3600 * PRICE
    say(f"{model}: {found:.4f} EUR, counted {counted_cost:.4f}")
    assert found == pytest.approx(
        counted_cost, abs=POINTS * own.queried * BLOCK / SPEED * GPUS / 3600 * PRICE
    )


@pytest.mark.parametrize("model", FLEETS)
def test_the_advice_promises_what_counting_block_by_block_says(
    model: str, tables: dict[str, Any], requests: list[TraceRequest], sizes: dict[str, Size]
) -> None:
    """What is below a hundredth of the prefill is no finding; causes are certain one by one as above."""
    lost, own = counted(requests, *sizes[model]), played(requests, *sizes[model])
    replicas, budget = sizes[model]
    filled, precision = own.queried - own.hits, POINTS * own.queried
    answer = tables[model]["answer"]
    assert answer[0]["title"] == "Prefill you could avoid"
    assert answer[0]["value"] * filled == pytest.approx(lost.blocks, abs=precision)
    advised: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for finding in tables[model]["findings"]:
        say(f"{model}: {finding['finding']}; {finding['figure']}; {finding['action']}")
        assert finding["at_least"] <= finding["tokens"] <= finding["at_most"]
        assert finding["rate_basis"] == "assumed"
        assert finding["gpu_seconds_per_hour"] == pytest.approx(finding["tokens_per_hour"] / SPEED * GPUS)
        advised[finding["kind"]].append(finding)
    assert set(advised) <= {"routing", "capacity"}
    if replicas == 1 or budget is None:
        assert ("routing" in advised) == (lost.routing + lost.either >= 0.01 * filled)
        assert ("capacity" in advised) == (lost.capacity + lost.either >= 0.01 * filled)
    for finding in advised["routing"]:
        assert finding["at_most"] / BLOCK == pytest.approx(lost.blocks, abs=precision)
        if budget is None:
            # Done as advised to the end: one endless cache for all requests.
            saved = played(requests, 1, None).hits - own.hits
            assert finding["tokens"] / BLOCK == pytest.approx(lost.routing, abs=precision)
            assert finding["tokens"] / BLOCK == pytest.approx(saved, abs=precision)
    if capacity := advised["capacity"]:
        # One replica that evicts more than all others is advised apart.
        most = sum(finding["at_most"] for finding in capacity) / BLOCK
        assert most == pytest.approx(lost.capacity + lost.either, abs=precision)
    if model == "small":
        [finding] = capacity
        assert budget is not None
        [extra] = [
            row["extra_tokens"] for row in tables[model]["gain"] if row["saved_tokens"] == finding["tokens"]
        ]
        assert f"{extra * BYTES / 2**30:.2f} GiB more KV cache" in finding["action"]
        larger = played(requests, replicas, budget + extra // BLOCK)
        assert finding["at_least"] <= (larger.hits - own.hits) * BLOCK <= finding["at_most"]
    if replicas > 1 and budget is None:
        assert answer[2]["figure"] == "Routing"
