"""Caches that are cleared now and then: the curve promises no more than larger ones save."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from pipeline.simulator.traffic.trace import TraceReplica
from pipeline.traces.reading import read_trace
from pipeline.traces.trace import TraceRequest
from pipeline.whatif.recorded import follow, saved
from schemas.events import Cleared, EventsRecord
from tests.support.checkout import TRACES
from tests.support.inputs.event_records import sent
from tests.support.inputs.traced import START, served
from tests.support.suite.night import first_by_day

SLICE = TRACES / "mooncake_conversation_1500.jsonl.gz"
BLOCK, BUDGET, BETWEEN = 512, 2000, 250


@dataclass
class Cache:
    """One engine that clears its cache every so many requests."""

    replica: TraceReplica

    def events(self, requests: list[TraceRequest]) -> Iterator[EventsRecord]:
        for seq, request in enumerate(requests):
            events = served(self.replica, request)
            if seq % BETWEEN == BETWEEN - 1:
                self.replica.pool.clear()
                events.append(Cleared())
            yield sent(seq, START + seq, *events, domain="m/x/default")

    def hits(self, requests: list[TraceRequest]) -> int:
        for _ in self.events(requests):
            pass
        return self.replica.counters.hit_blocks


@pytest.mark.parametrize("extra", first_by_day([500, 2000, None]))
def test_what_a_clear_would_have_taken_is_not_promised(extra: int | None) -> None:
    requests = read_trace(SLICE).requests
    cache = Cache(TraceReplica(512, BUDGET))
    fleet = follow(cache.events(requests), {})
    larger = Cache(TraceReplica(512, extra and BUDGET + extra)).hits(requests)
    promised = saved(fleet, 1, extra and extra * BLOCK)
    assert fleet.potential.blocks["cleared"] > 0
    assert 0 < promised.at_least <= (larger - cache.replica.counters.hit_blocks) * BLOCK <= promised.at_most
