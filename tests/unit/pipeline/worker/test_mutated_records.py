"""Mutated records between honest ones: nothing raises, and the honest ones fare as if there were none."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from connectors.kafka.encoding import JSON
from connectors.kafka.topics import partition_of
from pipeline.applying.offered import Offered
from pipeline.applying.reader import Ahead, Reader
from pipeline.applying.steps import at_once
from pipeline.reading.events_reader import EventsReader
from pipeline.reading.numbered import Readable
from pipeline.reading.partly_plain import PartlyPlain
from pipeline.worker.partition import OwnedPartition
from pipeline.worker.roles.fleet import FleetRole
from pipeline.worker.roles.replica import ReplicaRole
from schemas.json_form import to_json
from schemas.rows import Row
from schemas.settings import Settings
from tests.support.in_parts import read_in_parts
from tests.support.inputs.mutants import mutated
from tests.support.inputs.ordinary_walks import OrdinaryWalk
from tests.support.inputs.residency_walks import residency
from tests.support.inputs.source_walks import BEGAN, Walk
from tests.support.one_secret import with_one_secret
from tests.support.owned_partition import owned_partition
from tests.support.suite.night import first_by_day
from tests.support.table_columns import misfits

MUTANTS = 800
HONEST = ("honest-a", "honest-b")
encode = msgspec.msgpack.encode


class DecodesAll(EventsReader):
    """Reads nothing ahead."""

    def ahead(self, offered: Sequence[Offered]) -> Ahead[Readable]:
        return Reader.ahead(self, offered)


def events(seed: int, count: int) -> tuple[Iterator[bytes], Iterator[bytes]]:
    """Encoded records of two honest sources in turns, and those of another one."""
    walks = [
        Walk(seed + at, hybrid=at == 0, replica=name).records(4 * count) for at, name in enumerate(HONEST)
    ]
    bad = Walk(seed + 9, hybrid=seed % 2 == 0, replica="bad").records(4 * count)
    return (encode(record) for pair in zip(*walks, strict=False) for record in pair), map(encode, bad)


@pytest.mark.parametrize("mutants", first_by_day([MUTANTS // 4, MUTANTS]))
def test_honest_sources_are_what_they_are_without_mutated_events(mutants: int) -> None:
    honest, bad = events(1, mutants)
    rng = random.Random(1)
    role = ReplicaRole(Settings(), shards=2)
    poisoned, alone = owned_partition(role), owned_partition(role)
    rows: list[list[Row]] = [[], []]
    for number in range(mutants):
        good, fine = next(honest), next(bad)
        poison = mutated(fine, rng, times=rng.choice([1, 1, 2, 5]))
        # In a log that was written when all of it was over, so that its time bounds no honest one.
        first = poisoned.state.next_offset
        together = [
            Offered(first + at, value, (), None, BEGAN + 1e6) for at, value in enumerate((good, poison))
        ]
        poisoned.offer_all(together)
        for value in (good, fine):
            alone.offer_all([Offered(alone.state.next_offset, value, (), None, BEGAN + 1e6)])
        if number % 20 == 19:
            for partition, found in ((poisoned, rows[0]), (alone, rows[1])):
                cut, records = at_once(partition.cutting(BEGAN + 1e4))
                found += cut.rows
                assert max(len(record.value or b"") for record in records) < 8 << 20
    assert not [row for row in rows[0] if misfits(row)]
    with_poison, without = ([row for row in found if row.replica in HONEST] for found in rows)
    assert len(without) > mutants
    assert with_poison == without
    assert set_aside(poisoned) > mutants // 4
    assert set_aside(alone) == 0


@pytest.mark.parametrize("seed", first_by_day(range(3)))
def test_what_comes_together_fares_as_if_it_came_one_by_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain runs, notices, JSON, mutants and records of another partition, in fetches of any size.

    And as if all were decoded.
    """
    read_in_parts(monkeypatch)
    with_one_secret(monkeypatch)
    rng = random.Random(seed)
    role = ReplicaRole(Settings(), shards=2, partitions=2)
    decoding = ReplicaRole(Settings(), shards=2, partitions=2)
    decoding.reader = DecodesAll(Settings())
    partitions = [owned_partition(role), owned_partition(role), owned_partition(decoding)]
    together, alone, decoded = partitions
    names = [name for name in "abcdefghij" if partition_of(name, 2) == 0][:3]
    other = next(name for name in "abcdefghij" if partition_of(name, 2) == 1)
    walks = [OrdinaryWalk(seed + at, replica=name).records(300) for at, name in enumerate(names)]
    offered: list[Offered] = []
    for turn in zip(*walks, strict=False):
        for record in turn:
            value, headers = encode(record), ()
            kind = rng.random()
            if kind < 0.05:
                value = mutated(value, rng)
            elif kind < 0.1:
                value, headers = to_json(record), (("content-type", JSON),)
            elif kind < 0.12:
                value = encode(msgspec.structs.replace(record, replica=other))
            elif kind < 0.14:
                value = b""
            received = record.batches[-1].received_at if record.batches else BEGAN
            written = rng.choice([0.0, BEGAN, BEGAN + 1e6, received - 3.0, received - 30.0])
            offered.append(Offered(len(offered), value, headers, record.replica.encode(), written))
    read = role.reader.ahead(offered).records
    assert sum(isinstance(record, PartlyPlain) for _, record in read) > 10
    at = 0
    while at < len(offered):
        count = rng.choice([1, 5, 40, 200])
        together.offer_all(offered[max(0, at - 2) : at + count])
        for one in offered[at : at + count]:
            alone.offer_all([one])
            decoded.offer_all([one])
        at += count
        if rng.random() < 0.3:
            cuts = [at_once(partition.cutting(BEGAN + at)) for partition in partitions]
            assert cuts[0] == cuts[1] == cuts[2]
    cuts = [at_once(partition.cutting(BEGAN + 1e5)) for partition in partitions]
    assert cuts[0] == cuts[1] == cuts[2]
    assert set_aside(together) == set_aside(alone) == set_aside(decoded) > len(offered) // 30


@pytest.mark.parametrize("mutants", first_by_day([MUTANTS // 4, MUTANTS]))
def test_mutated_residency_ends_no_fleet_agent(mutants: int) -> None:
    rng = random.Random(2)
    partition = owned_partition(FleetRole(Settings(), shards=1))
    for number in range(mutants):
        good, fine = residency(number, rng, names="ab"), residency(number, rng, names="c")
        for value in (encode(good), mutated(encode(fine), rng)):
            partition.offer_all([Offered(partition.state.next_offset, value)])
        if number % 20 == 19:
            cut, _ = at_once(partition.cutting(BEGAN + 1e4))
            assert not [row for row in cut.rows if misfits(row)]
    assert set_aside(partition) > mutants // 4


def set_aside(partition: OwnedPartition[Any, Any]) -> float:
    registry = partition._metrics.registry
    return sum(
        sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "kvlens_worker_records_set_aside_total"
    )
