"""Plays recorded engines through both agents: with clocks that differ, over partitions, live or caught up."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import msgspec

from connectors.order.stream import SourceStream
from connectors.sources import Source
from pipeline.fleet.causes import CAUSES
from pipeline.fleet.state import FleetState
from pipeline.residency.partition import PartitionState
from pipeline.verify.keys import key_of
from schemas.events import EventsRecord
from schemas.fleet_rows import FillsRow
from schemas.residency import ResidencyRecord
from schemas.settings import Connector, Fleet, Worker
from tests.support.pairs.recorded import Recorded

SHARDS = 2
PLAYED_LATER = 36_000.0
"""Seconds: nothing is live when it is played."""
AFTERWARDS = 20.0
"""Seconds for which partitions go on when the last engine has said its last."""


class Logged(NamedTuple):
    at: float
    """When it was written."""
    record: EventsRecord


Layout = Callable[[Sequence[list[Logged]]], list[list[Logged]]]


def apart(logs: Sequence[list[Logged]]) -> list[list[Logged]]:
    """Give each replica a partition of its own."""
    return list(logs)


def together(logs: Sequence[list[Logged]]) -> list[list[Logged]]:
    """Put all replicas into one partition, the last one first, beside one in which nothing happens."""
    return [[each for log in reversed(logs) for each in log], []]


LAYOUTS: Mapping[str, Layout] = {"apart": apart, "together": together}


def logged(engine: Recorded, clock: float, *, labelled: bool = True) -> list[Logged]:
    """Return what a connector writes of an engine whose clock is so many seconds ahead.

    One that is not `labelled` only counts what comes to it.
    """
    now = 0.0
    role = engine.role if labelled else ""
    source = Source(engine.replica, engine.dp_rank, "m", "", "d", "tcp://127.0.0.1:1", role=role)
    stream = SourceStream(source, Connector(linger_seconds=0.0), lambda: now)
    scrapes = deque(engine.counted())
    log = []
    for topic, seq, payload in engine.frames:
        body = msgspec.msgpack.decode(payload)
        time: Any = 0 if isinstance(body, list) else "ts"
        records = []
        while scrapes and scrapes[0][0] <= body[time]:
            at, counters = scrapes.popleft()
            records += stream.note(counters, at + PLAYED_LATER)
        now = body[time] + PLAYED_LATER
        body[time] += clock
        records += [*stream.feed([topic, seq, msgspec.msgpack.encode(body)], now), *stream.flush()]
        log += [Logged(now + 0.1, record) for record in records]
    return log


class Partition:
    """One of the events topic, read as far as it is told."""

    def __init__(self, number: int, log: list[Logged], partitions: int) -> None:
        self.log = sorted(log, key=lambda each: each.at)
        self.done = 0
        self._state = PartitionState(number, Worker(), shards=SHARDS, partitions=partitions)

    def cut(self, until: float) -> list[tuple[int, ResidencyRecord]]:
        """Read until then, and cut; return records by shard."""
        while self.done < len(self.log) and self.log[self.done].at <= until:
            self._state.apply(self.done, self.log[self.done].record)
            self.done += 1
        self._state.read_to(until)
        decoder = msgspec.msgpack.Decoder(ResidencyRecord)
        return [(shard, decoder.decode(value)) for shard, _, value in self._state.cut(until).residency]


Reading = Callable[[list[Partition], random.Random], Iterator[tuple[int, ResidencyRecord]]]


def live(partitions: list[Partition], rng: random.Random) -> Iterator[tuple[int, ResidencyRecord]]:
    """Cut each one about once a second, none at the same time as another."""
    at = min(each.log[0].at for each in partitions if each.log)
    end = max(each.log[-1].at for each in partitions if each.log) + AFTERWARDS
    while at < end:
        for each in rng.sample(partitions, len(partitions)):
            yield from each.cut(at - rng.random())
        at += rng.choice([0.5, 1.0, 1.0, 2.0])


def caught_up(partitions: list[Partition], rng: random.Random) -> Iterator[tuple[int, ResidencyRecord]]:
    """Read one far ahead of the others."""
    end = max(each.log[-1].at for each in partitions if each.log)
    while left := [each for each in partitions if each.done < len(each.log)]:
        each = rng.choice(left)
        last = min(each.done + rng.choice([1, 50, 400]), len(each.log)) - 1
        yield from each.cut(each.log[last].at)
    for later in (AFTERWARDS / 2, AFTERWARDS):
        for each in partitions:
            yield from each.cut(end + later)


READINGS: Mapping[str, Reading] = {"live": live, "caught up": caught_up}


class Shards:
    """The fleet agent's states, which tell each other what they decide."""

    def __init__(self) -> None:
        self._states = [
            FleetState(shard, Fleet(), carry_seconds=0.0, shards=SHARDS) for shard in range(SHARDS)
        ]
        self._rows: dict[Any, FillsRow] = {}
        self._offsets = count()
        self.applied: list[list[ResidencyRecord]] = [[] for _ in range(SHARDS)]
        """By shard, in order."""

    def apply(self, shard: int, record: ResidencyRecord) -> None:
        """Apply a record; cut now and then."""
        offset = self._take(shard, record)
        if offset % 64 == 0:
            self.cut(shard)

    def cut(self, shard: int) -> None:
        """Keep the rows of a shard, and let the others know what it decided."""
        cut = self._states[shard].cut(0.0)
        self._rows |= {key_of(row): row for row in cut.rows if isinstance(row, FillsRow)}
        for said in cut.decisions:
            for other in {*range(SHARDS)} - {shard}:
                self._take(other, ResidencyRecord(shard, other, 0, [], decisions=said))

    def tokens(self) -> dict[tuple[str, int], Counter[str]]:
        """Return the tokens of fills by cause, of each replica and rank."""
        found: dict[tuple[str, int], Counter[str]] = {}
        for row in self._rows.values():
            of = found.setdefault((row.replica, row.dp_rank), Counter())
            of.update({cause: getattr(row, f"{cause}_tokens") for cause in CAUSES})
        return {of: +tokens for of, tokens in found.items()}

    def sums(self, *columns: str) -> Counter[str]:
        """Return what columns of the rows add up to, of each replica that has any."""
        found = Counter[str]()
        for row in self._rows.values():
            found[row.replica] += sum(getattr(row, column) for column in columns)
        return +found

    def out_of_order(self) -> int:
        """Return how many changes were late or never decided on, since the last call."""
        return sum(state.take_out_of_order().total() for state in self._states)

    def _take(self, shard: int, record: ResidencyRecord) -> int:
        offset = next(self._offsets)
        self._states[shard].apply(offset, record)
        self.applied[shard].append(record)
        return offset


def played(
    engines: Sequence[Recorded],
    clocks: Mapping[str, float],
    layout: Layout = apart,
    reading: Reading = live,
    seed: int = 0,
    *,
    labelled: bool = True,
) -> Shards:
    """Play engines through both agents; `clocks` has those by name that are not right.

    Where they are not `labelled`, their counters tell which of them receive KV.
    """
    shards = Shards()
    logs: dict[str, list[Logged]] = {}
    for engine in engines:
        log = logged(engine, clocks.get(engine.name, 0.0), labelled=labelled)
        logs.setdefault(engine.replica, []).extend(log)
    laid = layout([*logs.values()])
    partitions = [Partition(number, log, len(laid)) for number, log in enumerate(laid)]
    for shard, record in reading(partitions, random.Random(seed)):
        shards.apply(shard, record)
    for shard in [*range(SHARDS)] * 2:
        shards.cut(shard)
    return shards
