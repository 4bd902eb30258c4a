"""A trace under other conditions: hits as a plain recount has them, causes as both agents have them.

`KVLENS_TRACE` names another trace in Mooncake's format.
"""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.fleet.causes import FILL_CAUSES
from pipeline.fleet.state import FleetState
from pipeline.simulator.traffic.routing import Routing
from pipeline.traces.reading import read_trace
from pipeline.traces.trace import Trace, TraceRequest
from pipeline.whatif.conditions import CapacityTooSmall, Conditions, combined
from pipeline.whatif.playing import Played, play
from pipeline.whatif.promise import ideal, promised
from pipeline.whatif.recorded import NotKnown, follow, saved
from schemas.fleet_rows import CapacityCurveRow, FillsRow
from schemas.settings import Fleet
from tests.support.checkout import ROOT
from tests.support.inputs.traced import events, residency

TRACE = Path(
    os.environ.get("KVLENS_TRACE", ROOT / "tests/data/simulator/mooncake_conversation_1500.jsonl.gz")
)
BLOCK = 512

Play = Callable[[int, "int | None", Routing], Played]


@pytest.fixture(scope="module")
def requests() -> list[TraceRequest]:
    return read_trace(TRACE).requests


@pytest.fixture(scope="module")
def size(requests: list[TraceRequest]) -> int:
    """A cache that holds any request, and far from all of them."""
    longest = max(len(request.hash_ids) for request in requests)
    return max(longest, len({block for request in requests for block in request.hash_ids}) // 12)


@pytest.fixture(scope="module")
def played(requests: list[TraceRequest]) -> Play:
    known: dict[Conditions, Played] = {}

    def once(replicas: int, capacity: int | None, routing: Routing = "round-robin") -> Played:
        conditions = Conditions(replicas, capacity, routing)
        if conditions not in known:
            known[conditions] = play(Trace(requests, BLOCK), conditions)
        return known[conditions]

    return once


def hits_of_endless_caches(requests: list[TraceRequest], replicas: int) -> int:
    caches: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(replicas)]
    hits = 0
    for number, request in enumerate(requests):
        cache = caches[number % replicas]
        hits += next(
            (n for n, block in enumerate(request.hash_ids) if block not in cache), len(request.hash_ids)
        )
        cache.update(dict.fromkeys(request.hash_ids))
    return hits


@pytest.mark.parametrize("replicas", [1, 3, 8])
def test_endless_caches_hit_and_promise_what_a_recount_finds(
    replicas: int, requests: list[TraceRequest], played: Play
) -> None:
    row = played(replicas, None, "round-robin")
    assert row.hit_blocks == hits_of_endless_caches(requests, replicas)
    assert ideal(row) == hits_of_endless_caches(requests, 1)
    assert ideal(row, shared=False) == row.hit_blocks
    filled_blocks = sum(row.potential.blocks[cause] for cause in FILL_CAUSES)
    assert filled_blocks + row.hit_blocks == row.queried_blocks
    assert row.potential.filled_tokens == filled_blocks * BLOCK


@pytest.mark.parametrize(
    ("replicas", "bounded", "routing"),
    [(4, True, "round-robin"), pytest.param(3, False, "sticky", marks=pytest.mark.night)],
)
def test_causes_and_curve_are_those_of_both_agents(
    replicas: int, bounded: bool, routing: Routing, requests: list[TraceRequest], size: int
) -> None:
    capacity = size if bounded else None
    # At equal times the agents may take replicas in another order, which moves fills between causes.
    requests = [replace(request, seconds=float(number)) for number, request in enumerate(requests)]
    state = FleetState(0, Fleet(horizon_seconds=1e9), carry_seconds=0.0)
    for offset, record in enumerate(residency(events(requests, replicas, capacity, routing))):
        state.apply(offset, record)
    causes: Counter[str] = Counter()
    needed: Counter[int] = Counter()
    for row in state.cut(0.0).rows:
        if isinstance(row, FillsRow):
            causes.update({cause: getattr(row, f"{cause}_blocks") for cause in FILL_CAUSES})
        elif isinstance(row, CapacityCurveRow):
            needed.update(dict(enumerate(row.needed_hist)))
    found = play(Trace(requests, BLOCK), Conditions(replicas, capacity, routing)).potential
    assert causes["peer"] > 0 < causes["cold"]
    assert {cause: found.blocks[cause] for cause in FILL_CAUSES} == causes
    assert dict(enumerate(found.needed)) == needed


@pytest.mark.parametrize(
    ("replicas", "part"),
    [(1, 0.25), *(pytest.param(*case, marks=pytest.mark.night) for case in [(1, 1.0), (1, 4.0), (2, 1.0)])],
)
def test_the_curve_never_promises_more_than_larger_caches_save(
    replicas: int, part: float, requests: list[TraceRequest], size: int, played: Play
) -> None:
    budget = max(int(part * size), max(len(request.hash_ids) for request in requests))
    actual = played(replicas, budget, "round-robin")
    found = []
    for times in (0.01, 0.1, 0.5, 1.0, 2.0, None):
        larger = played(replicas, times and budget + int(times * budget) + 1, "round-robin")
        promise = promised(actual, larger)
        assert promise.at_least is not None
        assert actual.hit_blocks <= promise.at_least <= larger.hit_blocks <= promise.at_most
        found.append(promise.at_least)
    assert found == sorted(found)
    assert found[-1] == larger.hit_blocks == promise.at_most
    assert part > 1 or found[0] < found[-1]


@pytest.mark.night
def test_no_fleet_hits_more_than_the_ideal(size: int, played: Play) -> None:
    actual = played(8, size, "round-robin")
    best = 0
    for replicas, capacity, routing in (
        (8, size, "sticky"),
        (8, None, "sticky"),
        (2, None, "random"),
        (1, None, "random"),
    ):
        other = played(replicas, capacity, routing)
        promise = promised(actual, other)
        assert promise.at_least is None
        assert other.hit_blocks <= promise.at_most == ideal(actual)
        best = max(best, other.hit_blocks)
    assert best == ideal(actual)


def test_smaller_caches_are_promised_nothing(size: int, played: Play) -> None:
    larger, smaller = played(1, 2 * size, "round-robin"), played(1, size, "round-robin")
    promise = promised(larger, smaller)
    assert promise.at_least is None
    assert promise.kept_by(smaller.hit_blocks)
    assert promised(larger, larger).at_least == larger.hit_blocks


@pytest.mark.night
def test_a_recording_bounds_what_more_cache_would_have_saved(
    requests: list[TraceRequest], size: int, played: Play
) -> None:
    fleet = follow(events(requests, 2, size), {})
    row = played(2, size, "round-robin")
    assert (fleet.sources, fleet.incomplete) == (2, 0)
    assert fleet.potential.needed == row.potential.needed
    assert fleet.potential.blocks["cold"] == row.potential.blocks["cold"]
    for extra in (size // 4, size, None):
        larger = played(2, extra and size + extra, "round-robin")
        bounds = saved(fleet, 2, extra and extra * BLOCK)
        assert 0 < bounds.at_least <= (larger.hit_blocks - row.hit_blocks) * BLOCK <= bounds.at_most
    shared = saved(fleet, 1, None)
    assert shared.at_most == (ideal(row) - row.hit_blocks) * BLOCK >= shared.at_least > 0
    for replicas, extra in ((3, None), (1, BLOCK)):
        with pytest.raises(NotKnown, match=r"cannot tell what .*: hits leave no events"):
            saved(fleet, replicas, extra)


def test_times_in_whatever_unit_change_nothing() -> None:
    """Read in a wrong one, they may be later than any date."""
    trace = Trace([TraceRequest(at, 1024, (1, 2)) for at in (0.0, 4e18)], BLOCK)
    once = play(trace, Conditions(1, None, "round-robin"))
    assert (once.hit_blocks, once.potential.blocks["cold"]) == (2, 2)


def test_a_cache_that_holds_no_whole_request_is_refused() -> None:
    trace = Trace([TraceRequest(0.0, 1500, (1, 2, 3))], BLOCK)
    assert combined([2, 1], [3, None], ["sticky"], trace) == [
        Conditions(2, 3, "sticky"),
        Conditions(2, None, "sticky"),
        Conditions(1, 3, "sticky"),
        Conditions(1, None, "sticky"),
    ]
    with pytest.raises(CapacityTooSmall, match=r"at least 3 blocks \(1536t\)"):
        combined([1], [2], ["sticky"], trace)
