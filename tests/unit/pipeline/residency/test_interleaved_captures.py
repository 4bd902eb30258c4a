"""Captured engines in one log, another order each run: at every checkpoint the state is the engines' truth.

The order follows `--seed`, which is a random one unless it is given; pytest prints it first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from connectors.normalise.normaliser import Normaliser
from pipeline.residency.partition import PartitionState
from schemas.events import Batch, EventsRecord, Opened
from schemas.settings import Worker
from tests.support.inputs.captures import NAMES, captured_frames, captured_truth

PARTITIONS = 3
SHARDS = 4
LONGEST_RUN = 40
"""Batches of a record."""
CUT, RESTART, SENT_TWICE = 0.2, 0.1, 0.1
"""Chances after a record: a checkpoint; a worker that is killed; a record that the connector sends again."""
RECEIVED_AT = 1_900_000_000.0


@dataclass
class Partition:
    """A log, and a worker that reads it."""

    log: list[EventsRecord] = field(default_factory=list)
    state: PartitionState = field(default_factory=lambda: PartitionState(0, Worker(), shards=SHARDS))
    saved: dict[bytes, bytes] = field(default_factory=dict)
    saved_at: int = 0
    """Offset of the first record that no checkpoint holds."""

    def append(self, record: EventsRecord) -> None:
        """Write a record and let the worker apply it."""
        self.state.apply(len(self.log), record)
        self.log.append(record)

    def cut(self, at: float) -> None:
        """Save."""
        self.saved.update(self.state.cut(at).checkpoints)

    def restart(self) -> None:
        """Lose the worker; another one goes on from the last checkpoint."""
        self.state = PartitionState.restore(0, Worker(), shards=SHARDS, latest=self.saved)
        for offset in range(self.state.next_offset, len(self.log)):
            self.state.apply(offset, self.log[offset])


class Capture:
    """An engine's stream, cut into records of random lengths, and what the engine knew."""

    def __init__(self, name: str, random: Random) -> None:
        truth: dict[str, Any] = captured_truth(name)
        self.checkpoints = {row[0]: row for row in truth["checkpoints"]}
        self.physical_only = truth["engine"] == "sglang"
        normaliser = Normaliser(max_frame_bytes=1 << 24)
        batches = [
            normaliser.normalise(payload, seq=int.from_bytes(seq, "big"), received_at=RECEIVED_AT)
            for _, seq, payload in captured_frames(name)
        ]
        self.records: list[EventsRecord] = []
        at = 0
        while at < len(batches):
            run = batches[at : at + random.randint(1, LONGEST_RUN)]
            opened = [Batch(None, run[0].ts, run[0].ts, [Opened(0, complete=True)])] if at == 0 else []
            self.records.append(EventsRecord(name, "m", "d", 0, 1, [*opened, *run]))
            at += len(run)


def assert_as_the_engine_knew(partition: Partition, name: str, capture: Capture, seq: int) -> None:
    rows = [row for row in partition.state.sources[name, 0].occupancy() if row.medium == "gpu"]
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
    partitions = [Partition() for _ in range(PARTITIONS)]
    place = {name: random.choice(partitions) for name in NAMES}
    turns = [name for name, capture in captures.items() for _ in capture.records]
    random.shuffle(turns)
    left = {name: iter(capture.records) for name, capture in captures.items()}
    newest: dict[str, EventsRecord] = {}
    for name in turns:
        partition, record = place[name], next(left[name])
        partition.append(record)
        newest[name] = record
        if random.random() < SENT_TWICE:
            partition.append(record)
        if random.random() < CUT:
            partition.cut(record.batches[-1].ts)
        seq = record.batches[-1].seq
        assert seq is not None
        assert_as_the_engine_knew(partition, name, captures[name], seq)
        if random.random() < RESTART:
            partition.restart()
            for other, last in newest.items():
                seq = last.batches[-1].seq
                if place[other] is partition and seq is not None:
                    assert_as_the_engine_knew(partition, other, captures[other], seq)
    for name, capture in captures.items():
        assert newest[name] is capture.records[-1]
        source = place[name].state.sources[name, 0]
        assert source.overall_trust().trust == "complete"
        assert sum(len(record.batches) for record in capture.records) - 1 == len(capture.checkpoints)
