"""A fleet with one thing wrong for each kind of finding, and the same fleet after somebody did as advised."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from pipeline.traces.reading import read_trace
from pipeline.traces.trace import TraceRequest
from tests.support.advice.scenario import BLOCK, Scenario, conversations, one_prompt
from tests.support.checkout import ROOT

_SECONDS = 1200.0
_SMALL, _LARGE = 150, 700
NEW_PROMPT, _NEW_BLOCKS = 5_000_000, 30
_TRACE = ROOT / "tests/data/simulator/mooncake_conversation_1500.jsonl.gz"
_TRACED, _TRACED_SMALL = 1500, 500


@dataclass(frozen=True)
class Case:
    """What is wrong, which finding says so, and what somebody does about it."""

    title: str
    kind: str
    wrong: Scenario
    done: str
    right: Callable[[int, Sequence[int]], Scenario]
    """The fleet afterwards, given the extra blocks (0 if it names none) and the replicas of the finding."""
    only_about: bool = False
    """What is done is not quite what the lower bound is of."""


@cache
def chat() -> tuple[TraceRequest, ...]:
    """Conversations under six system prompts."""
    return tuple(conversations(1, _SECONDS, 1.0))


@cache
def documents() -> tuple[TraceRequest, ...]:
    """Questions about forty documents of sixteen blocks, some of them asked about far more often."""
    rng = random.Random(3)
    weights = [1 / (rank + 1) for rank in range(40)]
    requests, at, number = [], 0.0, 10_000
    while (at := at + rng.expovariate(1.5)) < _SECONDS:
        first = 16 * rng.choices(range(40), weights)[0]
        ids = (*range(first, first + 16), number)
        number += 1
        requests.append(TraceRequest(at, BLOCK * len(ids), ids))
    return tuple(requests)


def _in_turn(begun: float, apart: float, replicas: int) -> tuple[tuple[float, int], ...]:
    return tuple((begun + apart * number, number) for number in range(replicas))


def _with_new_prompt() -> tuple[TraceRequest, ...]:
    new = one_prompt(7, 600.0, _SECONDS, 0.4, _NEW_BLOCKS, NEW_PROMPT)
    return tuple(sorted((*chat(), *new), key=lambda request: request.seconds))


@cache
def mooncake() -> tuple[TraceRequest, ...]:
    """The beginning of the public conversation trace, no two requests at one time."""
    return tuple(
        replace(request, seconds=request.seconds + number * 1e-6)
        for number, request in enumerate(read_trace(_TRACE).requests)
    )


def _cases() -> Iterator[Case]:
    routed = Scenario(chat(), (_LARGE,) * 4)
    traced = Scenario(mooncake(), (_TRACED,) * 4)
    cramped = replace(traced, capacities=(_TRACED_SMALL,) * 4)
    small = Scenario(chat(), (_SMALL,) * 4, "sticky")
    one_small = replace(small, capacities=(_LARGE, _LARGE, _SMALL, _LARGE))
    restarted = Scenario(documents(), (_LARGE,) * 8, "follow", restarts=_in_turn(600.0, 1.0, 8))
    prompted = Scenario(_with_new_prompt(), (_LARGE // 2,) * 4, "sticky", prompts={NEW_PROMPT: _NEW_BLOCKS})
    seeded = Scenario(chat(), (_LARGE,) * 4, seeds={3: "other"})
    lossy = Scenario(chat(), (_LARGE // 2,) * 4, lost=(1, 40, 20))
    by_prefix = "requests go where their prefix is"
    yield Case(
        "chats, round-robin", "routing", routed, by_prefix, lambda *_: replace(routed, routing="follow")
    )
    yield Case(
        "Mooncake, round-robin", "routing", traced, by_prefix, lambda *_: replace(traced, routing="follow")
    )
    yield Case(
        "small caches",
        "capacity",
        small,
        "all get more cache",
        lambda extra, these: _larger(small, extra, these),
    )
    yield Case(
        "small caches", "capacity", small, "all get a CPU tier",
        lambda extra, _: replace(small, tier=_SMALL + extra), only_about=True,
    )  # fmt: skip
    yield Case(
        "one small cache", "capacity", one_small, "it gets more cache",
        lambda extra, these: _larger(one_small, extra, these),
    )  # fmt: skip
    yield Case(
        "Mooncake, small caches",
        "capacity",
        cramped,
        "those named get more cache",
        lambda extra, these: _larger(cramped, extra, these),
    )
    yield Case(
        "all restart at once", "restarts", restarted, "one restarts a minute",
        lambda *_: replace(restarted, restarts=_in_turn(600.0, 60.0, 8)),
    )  # fmt: skip
    yield Case(
        "a new prompt everywhere", "prefix", prompted, "one replica gets it",
        lambda *_: replace(prompted, pinned={NEW_PROMPT: 1}),
    )  # fmt: skip
    yield Case(
        "one hashes differently",
        "hashes",
        seeded,
        "it gets the others' seed",
        lambda *_: replace(seeded, seeds={}),
    )
    yield Case(
        "20 batches are lost", "streams", lossy, "replay brings them", lambda *_: replace(lossy, lost=None)
    )


def _larger(scenario: Scenario, blocks: int, replicas: Sequence[int]) -> Scenario:
    sizes = (size + blocks * (number in replicas) for number, size in enumerate(scenario.capacities))
    return replace(scenario, capacities=tuple(sizes))


CASES = tuple(_cases())
