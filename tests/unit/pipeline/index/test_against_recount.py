"""Answers at many moments of random logs, with restarts of the index, against a plain recount."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pipeline.index.answers import Answer
from pipeline.index.following.partition import IndexedPartition
from pipeline.index.following.sources import Sources
from pipeline.index.index import Index
from pipeline.index.questions.chains import chains_of
from pipeline.index.questions.question import Question
from pipeline.residency.partition import PartitionState
from pipeline.verify.replica.source import SourceRecount
from schemas.events import EventsRecord, Stored
from schemas.settings import Worker
from tests.support.holders import Held, held_by_each
from tests.support.inputs.ordinary_walks import OrdinaryWalk
from tests.support.inputs.source_walks import Walk

SOURCES = 4
RECORDS = 40


class Installation:
    """The replica agent with its checkpoints, an index, and the recount of every source."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.agent = PartitionState(0, Worker(), shards=1)
        self.checkpoint: dict[bytes, bytes] = {}
        self.log: list[EventsRecord] = []
        self.recounts: dict[tuple[str, int], SourceRecount] = {}
        self.restarts = 0
        self.start()

    def start(self) -> None:
        """Start an index from the last checkpoint and the log behind it."""
        self.sources = Sources()
        self.partition = IndexedPartition(0, Worker(), self.sources)
        self.partition.load({key: value for key, value in self.checkpoint.items() if value is not None})
        for offset in range(self.partition.next_offset, len(self.log)):
            self.partition.apply(offset, self.log[offset])
        self.partition.settle()
        self.index = Index(self.sources)

    def apply(self, record: EventsRecord) -> None:
        offset = len(self.log)
        self.log.append(record)
        self.agent.apply(offset, record)
        self.partition.apply(offset, record)
        self.partition.settle()
        key = (record.replica, record.dp_rank)
        if key not in self.recounts:
            self.recounts[key] = SourceRecount(*key, Worker())
        self.recounts[key].apply(offset, record)

    def disturb(self) -> None:
        if self.rng.random() < 0.5:
            self.sources.holdings.sweep()
        if self.rng.random() < 0.1:
            self.partition.let_go()
        if self.rng.random() < 0.1:
            self.checkpoint.update(self.agent.cut(0.0).checkpoints)
        if self.rng.random() < 0.04:
            self.restarts += 1
            self.start()

    def asked(self, model: str, prompts: Sequence[Sequence[int]]) -> list[Answer]:
        """Return the answers to prompts that are asked at once."""
        question = Question(model, prompts=[[*chain] for chain in prompts])
        return self.index.answers(question, self.index.scopes_of(question), chains_of(question.chains), 0.0)


def chains(walks: Sequence[Walk], rng: random.Random) -> Iterator[list[int]]:
    """Beginnings of prompts as far as anybody sent them, and chains of whatever blocks there are."""
    walk = rng.choice(walks)
    yield rng.sample(walk.pool, rng.randint(1, 6))
    if walk.chains:
        yield from ([*chain[:60]] for chain in rng.choice(walk.chains) if chain)


def shared(walks: Sequence[Walk]) -> None:
    """Let all sources see the same blocks."""
    for walk in walks[1:]:
        walk.pool = walks[0].pool
        walk.chains = walks[0].chains


def told(answer: Answer) -> dict[tuple[str, int], Held]:
    return {
        (replica, int(rank)): Held(match.gpu, match.cpu, match.disk, match.matched_blocks)
        for replica, instance in answer.instances.items()
        for rank, match in instance.ranks.items()
    }


class WindowedWalk(OrdinaryWalk):
    """Group 1 of the GPU is of another kind of attention."""

    kind, window = "sliding_window", 50

    def _record(self) -> EventsRecord | None:
        record = super()._record()
        for batch in record.batches if record is not None else ():
            for event in batch.events:
                if isinstance(event, Stored):
                    windowed = event.medium == "gpu" and event.group_idx == 1
                    event.spec_kind = self.kind if windowed else "full_attention"
                    event.sliding_window = self.window if windowed and self.kind != "mamba" else None
        return record


class MambaWalk(WindowedWalk):
    kind, window = "mamba", -1


WALKS: dict[str, Any] = {
    "ordinary": OrdinaryWalk,
    "everything": Walk,
    "hybrid": Walk,
    "sliding": WindowedWalk,
    "mamba": MambaWalk,
}


@pytest.mark.parametrize("kind", WALKS)
@pytest.mark.parametrize("seed", range(2))
def test_every_answer_is_that_of_the_recount(kind: str, seed: int) -> None:
    rng = random.Random(f"{kind} {seed}")
    of_kind = WALKS[kind]
    walks = [of_kind(rng.getrandbits(30), hybrid=kind == "hybrid", replica=f"r{n}") for n in range(SOURCES)]
    windows = {("gpu", 1): of_kind.window} if hasattr(of_kind, "window") else {}
    shared(walks)
    installation = Installation(rng)
    asked = matched = 0
    for record in itertools.chain.from_iterable(
        zip(*(walk.records(RECORDS) for walk in walks), strict=False)
    ):
        installation.apply(record)
        recounts = [one for one in installation.recounts.values() if one.model == "m"]
        if recounts:
            prompts = [*chains(walks, rng)]
            expected = [held_by_each(recounts, chain, windows) for chain in prompts]
            assert [*map(told, installation.asked("m", prompts))] == expected
            asked, matched = asked + len(prompts), matched + sum(map(bool, expected))
        installation.disturb()
    assert asked > 150
    assert matched > asked // 20
    assert installation.restarts


def test_a_thousand_moments_of_one_run() -> None:
    """A fleet of hybrid and other engines that restart, drop and clear, and an index that starts anew."""
    rng = random.Random("a thousand moments")
    walks = [Walk(rng.getrandbits(30), hybrid=n % 2 == 1, replica=f"r{n}") for n in range(SOURCES)]
    shared(walks)
    installation = Installation(rng)
    moments = matched = 0
    records = itertools.chain.from_iterable(zip(*(walk.records(280) for walk in walks), strict=False))
    for record in records:
        installation.apply(record)
        recounts = [one for one in installation.recounts.values() if one.model == "m"]
        if recounts:
            chain = rng.choice([*chains(walks, rng)])
            expected = held_by_each(recounts, chain)
            assert [*map(told, installation.asked("m", [chain]))] == [expected]
            moments, matched = moments + 1, matched + bool(expected)
        installation.disturb()
    assert moments >= 1_000
    assert matched > moments // 20
    assert installation.restarts > 20
