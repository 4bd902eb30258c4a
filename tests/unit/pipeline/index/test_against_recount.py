"""Answers at many moments of random logs, with restarts of the index, against a plain recount."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pipeline.index.answers import Answer
from pipeline.index.questions.chains import chains_of
from pipeline.index.questions.question import Question
from pipeline.reading.partly_plain import PartlyPlain
from pipeline.verify.replica.copies import Copies
from pipeline.verify.replica.source import SourceRecount
from schemas.events import EventsRecord, Removed, Stored
from schemas.settings import Worker
from schemas.trust import TRUST_ORDER
from tests.support.following_index import FollowingIndex
from tests.support.holders import LAST_BLOCK, TIERS, UNTOLD, WHOLE, Held, held_by_each, told
from tests.support.in_parts import as_read, read_in_parts
from tests.support.inputs.ordinary_walks import OrdinaryWalk
from tests.support.inputs.source_walks import Walk
from tests.support.replica_agent import ReplicaAgent
from tests.support.suite.night import by_day, first_by_day

SOURCES = 4
RECORDS = 40


class Installation:
    """The replica agent with its checkpoints, an index, and the recount of every source."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.agent = ReplicaAgent()
        self.recounts: dict[tuple[str, int], SourceRecount] = {}
        self.restarts = self.in_parts = 0
        self.start()

    def start(self) -> None:
        """Start an index from the last checkpoint and the log behind it."""
        self.following = FollowingIndex(latest=self.agent.latest)
        for offset in range(self.following.partition.next_offset, len(self.agent.log)):
            self.following.partition.apply(offset, as_read(offset, self.agent.log[offset]))
        self.following.partition.settle()

    def apply(self, record: EventsRecord) -> None:
        offset = len(self.agent.log)
        self.agent.apply(record)
        read = as_read(offset, record)
        self.in_parts += isinstance(read, PartlyPlain)
        self.following.partition.apply(offset, read)
        self.following.partition.settle()
        key = (record.replica, record.dp_rank)
        self.recounts.setdefault(key, SourceRecount(*key, Worker())).apply(offset, record)

    def disturb(self) -> None:
        if self.rng.random() < 0.5:
            self.following.sources.holdings.sweep()
        if self.rng.random() < 0.1:
            self.following.partition.let_go()
        if self.rng.random() < 0.1:
            self.agent.cut(0.0)
        if self.rng.random() < 0.04:
            self.restarts += 1
            self.start()

    def asked(self, model: str, prompts: Sequence[Sequence[int]]) -> list[Answer]:
        """Return the answers to prompts that are asked at once."""
        index, question = self.following.index, Question(model, prompts=[[*chain] for chain in prompts])
        return index.answers(question, index.scopes_of(question), chains_of(question.chains), 0.0)


def chains(walks: Sequence[Walk], rng: random.Random) -> Iterator[list[int]]:
    """Beginnings of prompts as far as anybody sent them, and chains of whatever blocks there are."""
    walk = rng.choice(walks)
    yield rng.sample(walk.pool, rng.randint(1, 6))
    if walk.chains:
        yield from ([*chain[:60]] for chain in rng.choice(walk.chains) if chain)


def resident(recount: SourceRecount, rng: random.Random) -> list[int]:
    """A chain that a source holds, tier by tier: on each perhaps some blocks of group 0, then some of all."""
    chain: list[int] = []
    for tier in TIERS:
        of_groups: dict[int, set[int]] = {}
        for (medium, group), pool in recount.pools.items():
            if (medium if medium in TIERS else "disk") == tier:
                blocks = pool.blocks if isinstance(pool, Copies) else pool.coarse | pool.fine
                of_groups.setdefault(group, set()).update(blocks)
        of_all = set.intersection(*of_groups.values()) if of_groups else set()
        of_first = of_groups.get(0, set()) if rng.random() < 0.4 else set()
        for blocks in (of_first - of_all, of_all):
            held = sorted(blocks - {*chain})
            chain += rng.sample(held, min(len(held), rng.randint(0, 3)))
    return chain


def shared(walks: Sequence[Walk]) -> None:
    """Let all sources see the same blocks."""
    for walk in walks[1:]:
        walk.pool = walks[0].pool
        walk.chains = walks[0].chains


class UnnamedWalk(OrdinaryWalk):
    """No group says of what kind it is."""

    def _record(self) -> EventsRecord | None:
        record = super()._record()
        for batch in record.batches if record is not None else ():
            for event in batch.events:
                if isinstance(event, Stored):
                    event.spec_kind = event.sliding_window = None
        return record


class StoringWalk(UnnamedWalk):
    """Nothing leaves one by one, so nothing leaves that was not there."""

    def _record(self) -> EventsRecord | None:
        record = super()._record()
        for batch in record.batches if record is not None else ():
            batch.events = [event for event in batch.events if not isinstance(event, Removed)]
        return record


class WindowedWalk(OrdinaryWalk):
    """Group 1 is of another kind of attention."""

    kind, window = "sliding_window", 20

    def __init__(self, seed: int, **more: Any) -> None:
        super().__init__(seed, **more)
        self.groups = [0, 1]

    def _record(self) -> EventsRecord | None:
        record = super()._record()
        for batch in record.batches if record is not None else ():
            for event in batch.events:
                if isinstance(event, Stored):
                    windowed = event.group_idx == 1
                    event.spec_kind = self.kind if windowed else "full_attention"
                    event.sliding_window = self.window if windowed and self.window > 0 else None
        return record


class MambaWalk(WindowedWalk):
    kind, window = "mamba", LAST_BLOCK


class FullWalk(WindowedWalk):
    kind, window = "full_attention", WHOLE


class ChunkedWalk(WindowedWalk):
    """As vLLM announces chunked local attention: by its name, without the size of a chunk."""

    kind, window = "chunked_local_attention", UNTOLD


WALKS: dict[str, Any] = {
    "unnamed": UnnamedWalk,
    "everything": Walk,
    "hybrid": Walk,
    "sliding": WindowedWalk,
    "mamba": MambaWalk,
    "chunked": ChunkedWalk,
    "full": FullWalk,
    "storing": StoringWalk,
}


def windows_of(walks: Sequence[Walk]) -> dict[str, dict[int, int]]:
    return {walk.replica: {0: WHOLE, 1: walk.window} for walk in walks if isinstance(walk, WindowedWalk)}


class Seen:
    """What the answers of a run said."""

    def __init__(self) -> None:
        self.prompts = self.matched = 0
        self.kinds: Counter[str] = Counter()

    def add(self, expected: dict[tuple[str, int], Held]) -> None:
        self.prompts += 1
        self.matched += bool(expected)
        for held in expected.values():
            self.kinds[held.trust] += 1
            self.kinds["upper bound"] += held.upper_bound
            self.kinds["lower bound"] += held.lower_bound
            self.kinds["on the GPU"] += held.gpu > 0
            self.kinds["further on the CPU"] += held.cpu > held.gpu
            self.kinds["further below"] += held.disk > held.cpu


@pytest.mark.parametrize("kind", by_day(WALKS, ("hybrid", "sliding", "storing")))
@pytest.mark.parametrize("seed", first_by_day(range(2)))
def test_every_answer_is_that_of_the_recount(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_parts(monkeypatch)
    rng = random.Random(f"{kind} {seed}")
    of_kind = WALKS[kind]
    walks = [of_kind(rng.getrandbits(30), hybrid=kind == "hybrid", replica=f"r{n}") for n in range(SOURCES)]
    windows = windows_of(walks)
    shared(walks)
    installation = Installation(rng)
    seen, by_window = Seen(), 0
    for record in itertools.chain.from_iterable(
        zip(*(walk.records(RECORDS) for walk in walks), strict=False)
    ):
        installation.apply(record)
        recounts = [one for one in installation.recounts.values() if one.life.model == "m"]
        if recounts:
            prompts = [*chains(walks, rng), *filter(None, (resident(one, rng) for one in recounts))]
            expected = [held_by_each(recounts, chain, windows) for chain in prompts]
            assert [told(answer.instances) for answer in installation.asked("m", prompts)] == expected
            for each in expected:
                seen.add(each)
            by_window += bool(windows) and held_by_each(recounts, prompts[-1]) != expected[-1]
        installation.disturb()
    assert seen.prompts > 300
    assert seen.matched >= 0.3 * seen.prompts
    assert by_window >= 15 * bool(windows)
    assert installation.restarts
    assert installation.in_parts


@pytest.mark.night
def test_a_thousand_moments_of_one_run() -> None:
    """A fleet of hybrid and other engines that restart, drop and clear, and an index that starts anew."""
    rng = random.Random("a thousand moments")
    of_kinds: list[Any] = [Walk, Walk, WindowedWalk, MambaWalk, ChunkedWalk, StoringWalk]
    walks = [of(rng.getrandbits(30), hybrid=n == 1, replica=f"r{n}") for n, of in enumerate(of_kinds)]
    for number, walk in enumerate(walks):
        walk.media, walk.groups = ["gpu", "cpu", "storage", "disk"][: 3 + number % 2], [0, 1]
    # The only one without files, which outlive engines.
    walks[-1].media = ["gpu", "cpu"]
    windows = windows_of(walks)
    shared(walks)
    installation = Installation(rng)
    seen = Seen()
    records = itertools.chain.from_iterable(zip(*(walk.records(280) for walk in walks), strict=False))
    for record in records:
        installation.apply(record)
        recounts = [one for one in installation.recounts.values() if one.life.model == "m"]
        if recounts:
            held = resident(rng.choice(recounts), rng)
            chain = held if rng.random() < 0.5 else rng.choice([*chains(walks, rng)])
            expected = held_by_each(recounts, chain, windows)
            assert [told(answer.instances) for answer in installation.asked("m", [chain])] == [expected]
            seen.add(expected)
        installation.disturb()
    assert seen.prompts >= 1_000
    assert seen.matched >= 0.3 * seen.prompts
    assert min(seen.kinds[trust] for trust in TRUST_ORDER) >= 5, seen.kinds
    tiers = ("on the GPU", "further on the CPU", "further below", "upper bound", "lower bound")
    assert min(seen.kinds[tier] for tier in tiers) >= 100, seen.kinds
    assert installation.restarts > 20
