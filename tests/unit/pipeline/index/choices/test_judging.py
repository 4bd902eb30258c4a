"""Choices at many moments of random logs, judged by the index and by a plain recount of every cache."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from pipeline.index.answers import IndexState
from pipeline.index.choices.judging import Judge
from pipeline.index.choices.posted import Choice, Choices
from pipeline.index.questions.refused import QuestionRefused
from pipeline.verify.replica.source import SourceRecount
from schemas.events import Stored
from schemas.settings import Worker
from schemas.trust import TRUST_ORDER
from tests.support.following_index import FollowingIndex
from tests.support.holders import held_by_each
from tests.support.inputs.event_records import sent
from tests.support.inputs.source_walks import Walk, pack
from tests.support.suite.night import first_by_day

FRESH = IndexState(0.25, False, 0)
NOBODY = "nobody"


@pytest.mark.parametrize("seed", first_by_day(range(3)))
def test_every_verdict_is_that_of_the_recount(seed: int) -> None:
    rng = random.Random(seed)
    walks = [Walk(rng.getrandbits(30), hybrid=False, replica=f"r{n}") for n in range(4)]
    for walk in walks[1:]:
        walk.pool, walk.chains = walks[0].pool, walks[0].chains
    following = FollowingIndex()
    recounts: dict[str, SourceRecount] = {}
    seen: Counter[str] = Counter()
    turns = itertools.chain.from_iterable(zip(*(walk.records(40) for walk in walks), strict=False))
    for offset, record in enumerate(turns):
        following.partition.apply(offset, record)
        following.partition.settle()
        recounts.setdefault(record.replica, SourceRecount(record.replica, 0, Worker())).apply(offset, record)
        caches = [one for one in recounts.values() if one.life.model == "m"]
        if not caches:
            continue
        chain = rng.sample(walks[0].pool, rng.randint(1, 6))
        if walks[0].chains and rng.random() < 0.7:
            chain = [*rng.choice([each for pair in walks[0].chains for each in pair if each] or [chain])]
        chosen = rng.choice([NOBODY, *(walk.replica for walk in walks)])
        choice = Choice(f"q{offset}", [*chain], chosen, 12.5)
        made = Judge(following.index, Choices([choice], "m"), share=False).record(choice, FRESH, 99.0)

        held = {replica: tokens.disk for (replica, _), tokens in held_by_each(caches, chain).items()}
        best = max(held.values(), default=0)
        if chosen not in {one.replica for one in caches}:
            assert (made.not_judged, made.best_tokens, made.chosen_tokens) == ("unknown_replica", 0, 0)
            seen["unknown"] += 1
            continue
        assert (made.not_judged, made.best_tokens, made.chosen_tokens) == (None, best, held.get(chosen, 0))
        holders = {replica for replica, tokens in held.items() if tokens == best}
        expected = "" if not best else chosen if chosen in holders else min(holders)
        assert made.best_replica == expected
        trusts = [one.trust for one in following.index.replicas(0.0) if one.replica in (chosen, expected)]
        assert made.trust == max(trusts, key=TRUST_ORDER.index)
        assert (made.request_id, made.time, made.blocks) == (f"q{offset}", 12.5, len(chain))
        assert (made.stale, made.index_age_seconds) == (False, 0.25)
        seen["worse" if made.chosen_tokens < best else "best" if best else "nothing"] += 1
    assert min(seen[kind] for kind in ("unknown", "worse", "best", "nothing")) > 3, seen


def held(following: FollowingIndex, offset: int, replica: str, *stored: Stored, rank: int = 0) -> None:
    said = sent(0, 2.0, *stored, replica=replica, domain="m/x/default")
    said.dp_rank = rank
    following.partition.apply(offset, said)
    following.partition.settle()


def test_a_replica_matches_as_its_best_rank_does_and_storage_is_an_upper_bound() -> None:
    following = FollowingIndex()
    held(following, 0, "a", Stored(pack([1]), 16, 16))
    held(following, 1, "a", Stored(pack([1, 2]), 16, 32), rank=1)
    held(following, 2, "b", Stored(pack([1]), 16, 16), Stored(pack([2, 3]), 16, medium="fs"))
    held(following, 3, "c")
    made = {}
    for replica in ("a", "b", "c"):
        choice = Choice("q", [1, 2, 3, 4], replica)
        made[replica] = Judge(following.index, Choices([choice], "m"), share=False).record(
            choice, FRESH, 99.0
        )
    assert {name: (one.chosen_tokens, one.best_tokens) for name, one in made.items()} == {
        "a": (32, 48),
        "b": (48, 48),
        "c": (0, 48),
    }
    assert {one.best_replica for one in made.values()} == {"b"}
    assert all(one.upper_bound for one in made.values())
    assert {one.time for one in made.values()} == {99.0}


def test_an_index_with_a_share_judges_nothing() -> None:
    following = FollowingIndex()
    held(following, 0, "a", Stored(pack([1]), 16, 16))
    choice = Choice("q", [1], "a")
    made = Judge(following.index, Choices([choice], "m"), share=True).record(
        choice, IndexState(9.0, True, 3), 99.0
    )
    assert (made.not_judged, made.best_tokens, made.best_replica, made.stale) == ("share", 0, "", True)


@pytest.mark.parametrize(("share", "reason"), [(True, "share"), (False, "unknown_replica")])
def test_what_is_not_judged_is_read_and_not_looked_up(
    share: bool, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    following = FollowingIndex()
    held(following, 0, "a", Stored(pack([1]), 16, 16))
    judge = Judge(following.index, Choices([], "m"), share=share)
    monkeypatch.setattr(following.index, "answers", lambda *_: pytest.fail("looked up"))
    assert judge.record(Choice("q", [1], NOBODY), FRESH, 99.0).not_judged == reason
    with pytest.raises(QuestionRefused, match="bad_hash"):
        judge.record(Choice("q", ["zz"], NOBODY), FRESH, 99.0)
