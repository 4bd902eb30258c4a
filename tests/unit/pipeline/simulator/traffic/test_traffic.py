"""Generated traffic and the routing of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import islice, pairwise

import pytest

from pipeline.simulator.traffic.requests import Request
from pipeline.simulator.traffic.routing import Router
from pipeline.simulator.traffic.workload import WorkloadSettings, arrivals

SETTINGS = WorkloadSettings(seed=1, rate=5.0, lora_share=0.25, canned_share=0.2)


def _taken(settings: WorkloadSettings, count: int = 2000) -> list[tuple[float, Request]]:
    return list(islice(arrivals(settings), count))


def test_equal_seeds_give_equal_traffic() -> None:
    assert _taken(SETTINGS, 200) == _taken(SETTINGS, 200)
    assert _taken(SETTINGS, 200) != _taken(replace(SETTINGS, seed=2), 200)


def test_requests_come_in_order_at_about_the_rate() -> None:
    times = [seconds for seconds, _ in _taken(SETTINGS)]
    assert times == sorted(times)
    for first in (0, 1000):
        assert 3.5 < 999 / (times[first + 999] - times[first]) < 6.5


def test_each_turn_continues_its_conversation() -> None:
    turns = defaultdict(list)
    for _, request in _taken(SETTINGS):
        turns[request.session].append(request)
    several = [conversation for conversation in turns.values() if len(conversation) > 1]
    assert len(several) > 100
    for conversation in several:
        for before, after in pairwise(conversation):
            history = before.prompt + before.output
            assert after.prompt[: len(history)] == history
            assert len(after.prompt) > len(history)
            assert after.lora == before.lora
    assert max(len(request.prompt) for _, request in _taken(SETTINGS)) <= SETTINGS.max_prompt_tokens


def test_system_prompts_are_shared_with_a_few_favourites() -> None:
    requests = [request for _, request in _taken(SETTINGS)]
    shared = Counter(request.prompt[: SETTINGS.system_prompt_tokens] for request in requests)
    assert len(shared) == SETTINGS.system_prompts
    ranked = [count for _, count in shared.most_common()]
    assert ranked[0] > 3 * ranked[-1]


def test_canned_questions_repeat_word_for_word() -> None:
    prompts = Counter(request.prompt for _, request in _taken(SETTINGS))
    assert len([prompt for prompt, count in prompts.items() if count > 5]) == SETTINGS.canned_questions
    everyone = _taken(replace(SETTINGS, canned_share=0.0))
    assert max(Counter(request.prompt for _, request in everyone).values()) == 1


def test_round_robin_deals_in_turn() -> None:
    router = Router("round-robin", 3)
    assert [router.choose(str(n)) for n in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_sticky_keeps_conversations_and_uses_every_place() -> None:
    router = Router("sticky", 4)
    places = {str(n): router.choose(str(n)) for n in range(200)}
    assert places == {str(n): router.choose(str(n)) for n in range(200)}
    assert min(Counter(places.values()).values()) > 30


def test_random_depends_on_the_seed_alone() -> None:
    def chosen(seed: int) -> list[int]:
        router = Router("random", 4, seed)
        return [router.choose("") for _ in range(100)]

    assert chosen(1) == chosen(1) != chosen(2)
    assert set(chosen(1)) == {0, 1, 2, 3}


def test_a_router_needs_somewhere_to_send() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Router("random", 0)
