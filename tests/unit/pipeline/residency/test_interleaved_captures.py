"""Captured engines in one log, another order each run: at every checkpoint the state is the engines' truth.

The order follows `--seed`, which is a random one unless it is given; pytest prints it first.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from schemas.events import EventsRecord
from tests.support.inputs.captures import NAMES, captured_batches, captured_truth
from tests.support.inputs.event_records import opened, record
from tests.support.replica_agent import ReplicaAgent

PARTITIONS = 3
LONGEST_RUN = 40
"""Batches of a record."""
CUT, RESTART, SENT_TWICE = 0.2, 0.1, 0.1
"""Chances after a record: a checkpoint; a worker that is killed; a record that the connector sends again."""


class Capture:
    """An engine's stream, cut into records of random lengths, and what the engine knew."""

    def __init__(self, name: str, random: Random) -> None:
        truth: dict[str, Any] = captured_truth(name)
        self.checkpoints = {row[0]: row for row in truth["checkpoints"]}
        self.physical_only = truth["engine"] == "sglang"
        batches = [*captured_batches(name)]
        self.records: list[EventsRecord] = []
        at = 0
        while at < len(batches):
            run = batches[at : at + random.randint(1, LONGEST_RUN)]
            self.records.append(record(*([] if at else [opened(run[0].ts)]), *run, replica=name))
            at += len(run)


def assert_as_the_engine_knew(partition: ReplicaAgent, name: str, capture: Capture, seq: int) -> None:
    rows = [row for row in partition.source(name).occupancy() if row.medium == "gpu"]
    physical, distinct = sum(row.entries for row in rows), sum(row.blocks for row in rows)
    known = capture.checkpoints[seq]
    if capture.physical_only:
        assert physical == known[1], (name, seq)
    else:
        assert (distinct, physical) == (known[1], known[2]), (name, seq)


def test_any_order_of_records_cuts_and_restarts_gives_the_engines_truth(
    request: pytest.FixtureRequest,
) -> None:
    seed = request.config.getoption("seed")
    print(f"make test ARGS=--seed={seed} repeats this order")  # noqa: T201 - shown when it fails
    random = Random(seed)
    captures = {name: Capture(name, random) for name in NAMES}
    partitions = [ReplicaAgent(shards=4) for _ in range(PARTITIONS)]
    place = {name: random.choice(partitions) for name in NAMES}
    turns = [name for name, capture in captures.items() for _ in capture.records]
    random.shuffle(turns)
    left = {name: iter(capture.records) for name, capture in captures.items()}
    newest: dict[str, EventsRecord] = {}
    for name in turns:
        partition, said = place[name], next(left[name])
        newest[name] = said
        partition.apply(*[said] * (2 if random.random() < SENT_TWICE else 1))
        if random.random() < CUT:
            partition.cut(said.batches[-1].ts)
        seq = said.last_seq
        assert seq is not None
        assert_as_the_engine_knew(partition, name, captures[name], seq)
        if random.random() < RESTART:
            partition.killed()
            for other, last in newest.items():
                if place[other] is partition and last.last_seq is not None:
                    assert_as_the_engine_knew(partition, other, captures[other], last.last_seq)
    for name, capture in captures.items():
        assert newest[name] is capture.records[-1]
        assert place[name].source(name).overall_trust().trust == "complete"
        assert sum(len(said.batches) for said in capture.records) - 1 == len(capture.checkpoints)
