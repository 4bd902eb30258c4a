"""A prefill and a decode engine: causes do not depend on partitions, on when they are read, or on clocks.

The pair is played through both agents' states. Its figures are those of its truth (tests/captures/README.md).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import pytest

from connectors.order.stream import SourceStream
from connectors.sources import Source
from pipeline.fleet.state import FleetState
from pipeline.residency.partition import PartitionState
from schemas.events import EventsRecord
from schemas.residency import ResidencyRecord
from schemas.rows import FillsRow
from schemas.settings import Connector, Fleet, Worker
from tests.support.inputs.captures import captured_frames

SHARDS = 2
PARTITIONS = 2
PLAYED_LATER = 36_000.0
"""Seconds: nothing is live when it is played."""
AVOIDABLE = "peer", "peer_and_evicted", "evicted", "evicted_elsewhere", "cleared"


class Logged(NamedTuple):
    at: float
    """When it was written."""
    record: EventsRecord


def logged(engine: str, clock: float) -> list[Logged]:
    """Return what a connector writes of an engine whose clock is so many seconds ahead."""
    now = 0.0
    source = Source(engine, 0, "m", "", "d", "tcp://127.0.0.1:1")
    stream = SourceStream(source, Connector(linger_seconds=0.0), lambda: now)
    log = []
    for topic, seq, payload in captured_frames(f"small.{engine}-0"):
        body = msgspec.msgpack.decode(payload)
        now = body[0] + PLAYED_LATER
        body[0] += clock
        records = [*stream.feed([topic, seq, msgspec.msgpack.encode(body)], now), *stream.flush()]
        log += [Logged(now + 0.1, record) for record in records]
    return log


class Partition:
    """One of the events topic, read as far as it is told."""

    def __init__(self, number: int, log: list[Logged]) -> None:
        self.log = sorted(log, key=lambda each: each.at)
        self.done = 0
        self._state = PartitionState(number, Worker(), shards=SHARDS, partitions=PARTITIONS)

    def cut(self, until: float) -> list[tuple[int, ResidencyRecord]]:
        """Read until then, and cut; return records by shard."""
        while self.done < len(self.log) and self.log[self.done].at <= until:
            self._state.apply(self.done, self.log[self.done].record)
            self.done += 1
        self._state.read_to(until)
        decoder = msgspec.msgpack.Decoder(ResidencyRecord)
        return [(shard, decoder.decode(value)) for shard, _, value in self._state.cut(until).residency]


def live(partitions: list[Partition], rng: random.Random) -> Iterator[tuple[int, ResidencyRecord]]:
    """Cut each one about once a second, none at the same time as another."""
    at = min(each.log[0].at for each in partitions if each.log)
    end = max(each.log[-1].at for each in partitions if each.log) + 20.0
    while at < end:
        for each in rng.sample(partitions, len(partitions)):
            yield from each.cut(at - rng.random())
        at += rng.choice([0.5, 1.0, 1.0, 2.0])


def caught_up(partitions: list[Partition], rng: random.Random) -> Iterator[tuple[int, ResidencyRecord]]:
    """Read one far ahead of the other."""
    end = max(each.log[-1].at for each in partitions if each.log)
    while left := [each for each in partitions if each.done < len(each.log)]:
        each = rng.choice(left)
        last = min(each.done + rng.choice([1, 50, 400]), len(each.log)) - 1
        yield from each.cut(each.log[last].at)
    for later in (10.0, 20.0):
        for each in partitions:
            yield from each.cut(end + later)


def avoidable(records: Iterator[tuple[int, ResidencyRecord]]) -> Counter[str]:
    """Return by engine the tokens of fills that had not been needed, if nothing came by transfer."""
    states = [FleetState(shard, Fleet(), carry_seconds=0.0) for shard in range(SHARDS)]
    rows = []
    for offset, (shard, record) in enumerate(records):
        for said in record.sources:
            said.receives = said.replica == "decode"
        states[shard].apply(offset, record)
        if offset % 64 == 0:
            rows += states[shard].cut(0.0).rows
    rows += [row for state in states for row in state.cut(0.0).rows]
    assert not any(state.take_out_of_order() for state in states)
    last = {(row.replica, row.shard, row.window): row for row in rows if isinstance(row, FillsRow)}
    found: Counter[str] = Counter()
    for row in last.values():
        found[row.replica] += sum(getattr(row, f"{cause}_tokens") for cause in AVOIDABLE)
    return found


@pytest.mark.parametrize("clock", [-1.0, -0.1, 0.0, 1.0])
def test_avoidable_tokens_are_those_of_the_pair(clock: float) -> None:
    decode, prefill = logged("decode", clock), logged("prefill", 0.0)
    for layout in ([prefill, decode], [[*decode, *prefill], []]):
        for seed, read in enumerate((live, caught_up)):
            partitions = [Partition(number, log) for number, log in enumerate(layout)]
            found = avoidable(read(partitions, random.Random(seed)))
            assert found == {"prefill": 4_368, "decode": 24_944}
