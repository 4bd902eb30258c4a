"""One engine rank: what it caches, hits, evicts and offloads."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from pipeline.simulator.engine.events import Cleared, Event, Removed, Stored
from pipeline.simulator.engine.scheduler import Engine, RequestTooLargeError
from pipeline.simulator.engine.settings import HYBRID_GROUPS, EngineSettings
from pipeline.simulator.traffic.requests import Lora, Request

BLOCK = 4


def _engine(**settings: object) -> Engine:
    return Engine(EngineSettings(**{"num_blocks": 33, "block_size": BLOCK, **settings}))


def _request(prompt: range | tuple[int, ...], output: int = 1, lora: Lora | None = None) -> Request:
    return Request("session", tuple(prompt), tuple(range(90_000, 90_000 + output)), lora)


def _run(engine: Engine, *requests: Request) -> list[list[Event]]:
    for request in requests:
        engine.submit(request)
    batches = []
    while engine.busy:
        batches.append(engine.step())
    return batches


def _stored(batches: list[list[Event]], medium: str = "gpu") -> list[Stored]:
    return [
        event for batch in batches for event in batch if isinstance(event, Stored) and event.medium == medium
    ]


def _removed(batches: list[list[Event]], medium: str = "gpu") -> list[bytes]:
    return [
        digest
        for batch in batches
        for event in batch
        if isinstance(event, Removed) and event.medium == medium
        for digest in event.digests
    ]


def test_full_blocks_are_announced_once_in_one_chain() -> None:
    engine = _engine()
    batches = _run(engine, _request(range(10), output=8))
    first, second, third = _stored(batches)
    assert (len(first.digests), first.parent, first.tokens) == (2, None, tuple(range(8)))
    assert (len(second.digests), second.parent) == (1, first.digests[-1])
    assert second.tokens == (8, 9, 90_000, 90_001)
    assert third.parent == second.digests[0]
    assert batches[1] == []
    # The last generated token is never computed, so its block stays partial.
    assert engine.pool.physical == 4


def test_a_repeated_prompt_computes_its_last_block_again() -> None:
    engine = _engine()
    first = _stored(_run(engine, _request(range(12))))[0]
    again = _stored(_run(engine, _request(range(12))))[0]
    assert again.digests == first.digests[2:]
    assert engine.counters.hits == 8
    assert engine.counters.queries == 24
    assert engine.counters.duplicate_blocks == 1
    assert max(copies for _, copies in engine.pool.copies()) == 2


def test_prefill_counts_when_a_request_ends_from_its_first_step_to_its_first_token() -> None:
    engine = _engine(step_tokens=8)
    engine.submit(_request(range(20), output=3))
    for _ in range(3):  # chunks of 8, 8 and 4 tokens
        engine.step()
    assert (engine.counters.prefill_steps, engine.counters.prefill_tokens) == (0, 0)
    while engine.busy:
        engine.step()
    assert (engine.counters.prefill_steps, engine.counters.prefill_tokens) == (3, 20)
    _run(engine, _request(range(20)))  # four of its five blocks are still there
    assert (engine.counters.prefill_steps, engine.counters.prefill_tokens) == (4, 24)


def test_requests_that_run_beside_each_other_count_each_for_itself() -> None:
    engine = _engine(step_tokens=8)
    _run(engine, _request(range(8)), _request(range(100, 108)))
    assert (engine.counters.prefill_steps, engine.counters.prefill_tokens) == (2, 16)
    _run(engine, _request(range(200, 204)), _request(range(300, 304)))
    assert (engine.counters.prefill_steps, engine.counters.prefill_tokens) == (4, 24)


def test_equal_prompts_at_the_same_time_share_blocks_and_duplicate_what_they_generate() -> None:
    engine = _engine()
    batches = _run(engine, _request(range(10), output=12), _request(range(10), output=12))
    copies = Counter(digest for stored in _stored(batches) for digest in stored.digests)
    assert sorted(copies.values()) == [1, 1, 2, 2, 2]
    assert dict(engine.pool.copies()) == {(0, digest): count for digest, count in copies.items()}


def test_an_adapter_separates_equal_prompts() -> None:
    engine = _engine()
    plain = _stored(_run(engine, _request(range(9))))[0]
    adapted = _stored(_run(engine, _request(range(9), lora=Lora(2, "sql"))))[0]
    assert engine.counters.hits == 0
    assert not set(plain.digests) & set(adapted.digests)
    assert (adapted.lora_id, adapted.lora_name) == (2, "sql")


def test_long_prompts_are_prefilled_in_chunks() -> None:
    batches = _run(_engine(step_tokens=10), _request(range(30)))
    assert [sum(len(stored.digests) for stored in _stored([batch])) for batch in batches] == [2, 3, 2]


def test_the_least_recently_freed_tail_is_evicted_first() -> None:
    engine = _engine(num_blocks=9)
    old = _stored(_run(engine, _request(range(16))))[0]
    new = _stored(_run(engine, _request(range(100, 116))))[0]
    assert _removed(_run(engine, _request(range(200, 209)))) == [old.digests[i] for i in (3, 2, 1)]
    # The head was touched by a hit, so the other conversation goes first.
    assert _removed(_run(engine, _request(range(5)))) == [new.digests[3]]


def test_what_does_not_fit_waits_or_is_preempted_and_everything_finishes() -> None:
    engine = _engine(num_blocks=9)
    requests = [_request(range(n * 50, n * 50 + 10), output=20) for n in range(4)]
    batches = _run(engine, *requests)
    assert engine.counters.finished_requests == 4
    assert engine.counters.preemptions > 0
    # A preempted request queries once.
    assert engine.counters.queries == 40
    assert engine.pool.used == 0
    assert engine.usage == 0.0
    assert len(_removed(batches)) == engine.counters.evicted_blocks


def test_a_request_larger_than_the_pool_is_refused() -> None:
    with pytest.raises(RequestTooLargeError) as refused:
        _engine(num_blocks=4).submit(_request(range(12)))
    assert (refused.value.blocks, refused.value.usable) == (4, 3)


def test_a_reset_is_refused_while_running_and_announced_with_the_next_step() -> None:
    engine = _engine()
    engine.submit(_request(range(9), output=3))
    engine.step()
    assert not engine.reset_prefix_cache()
    _run(engine)
    assert engine.reset_prefix_cache()
    assert engine.pool.physical == 0
    assert engine.step() == []  # an idle engine says nothing
    batch = _run(engine, _request(range(9)))[0]
    assert [type(event) for event in batch] == [Cleared, Stored]
    assert engine.counters.cleared_blocks == 2


def test_the_cpu_tier_gets_blocks_a_step_later_and_gives_them_back() -> None:
    engine = _engine(num_blocks=9, cpu_blocks=64)
    prompt = _request(range(17))
    batches = _run(engine, prompt)
    gpu, cpu = _stored(batches[:1])[0], _stored(batches[1:], "cpu")[0]
    assert cpu.digests == gpu.digests
    assert (cpu.tokens, cpu.parent) == ((), None)
    _run(engine, _request(range(100, 130)))  # pushes the first prompt out of the GPU
    batches = _run(engine, prompt)
    assert engine.counters.external_hits == 16
    assert _stored(batches)[0].digests == gpu.digests
    assert _stored(batches, "cpu") == []


def test_the_cpu_tier_evicts_what_was_used_least_recently_and_survives_a_reset() -> None:
    engine = _engine(num_blocks=9, cpu_blocks=6)
    first = _stored(_run(engine, _request(range(16))))[0].digests
    batches = _run(engine, _request(range(100, 116)))
    assert _removed(batches, "cpu") == list(first[:2])
    assert len(engine.cpu) == 6
    assert engine.cpu.evicted == 2
    assert engine.reset_prefix_cache()
    assert len(engine.cpu) == 6


def test_a_reset_of_all_tiers_leaves_nothing_to_copy() -> None:
    engine = Engine(EngineSettings(num_blocks=33, block_size=BLOCK, cpu_blocks=6), clears_cpu=True)
    _run(engine, _request(range(16)))
    assert len(engine.cpu)
    assert engine.reset_prefix_cache()
    assert (len(engine.cpu), engine.busy) == (0, False)
    [first, *_] = _run(engine, _request(range(100, 108)))
    assert isinstance(first[0], Cleared)
    assert not _removed([first], "cpu")


def test_equal_seeds_give_equal_events() -> None:
    def events() -> list[list[Event]]:
        rng = random.Random(3)
        requests = [_request(tuple(rng.choices(range(3), k=rng.randint(5, 40)))) for _ in range(30)]
        return _run(_engine(num_blocks=30, cpu_blocks=20), *requests)

    assert events() == events()


def _hybrid(num_blocks: int = 41) -> Engine:
    return Engine(
        EngineSettings(num_blocks=num_blocks, block_size=16, groups=HYBRID_GROUPS, fine_block_size=4)
    )


def _kinds(batch: list[Event]) -> list[tuple[str, int, int, int]]:
    return [
        (event.spec_kind, event.group, event.block_size, len(event.digests))
        for event in batch
        if isinstance(event, Stored)
    ]


def test_a_hybrid_engine_announces_coarse_then_fine_blocks_of_attention_only() -> None:
    engine = _hybrid()
    batch = _run(engine, _request(range(40)))[0]
    assert _kinds(batch) == [("full_attention", 0, 16, 2), ("full_attention", 0, 4, 10), ("mamba", 1, 16, 2)]
    coarse, fine, _mamba = (event for event in batch if isinstance(event, Stored))
    assert not set(coarse.digests) & set(fine.digests)
    assert fine.tokens == tuple(range(40))
    covers = dict(engine.fine.rows())
    assert [covers[digest] for digest in fine.digests] == (
        [frozenset(coarse.digests[:1])] * 4 + [frozenset(coarse.digests[1:])] * 4 + [frozenset()] * 2
    )


def test_a_short_prompt_of_a_hybrid_engine_announces_fine_blocks_only() -> None:
    engine = _hybrid()
    assert _kinds(_run(engine, _request(range(10)))[0]) == [("full_attention", 0, 4, 2)]
    assert _run(engine, _request(range(10)))[0] == []
    longer = _run(engine, _request(range(20)))[0]
    assert _kinds(longer) == [("full_attention", 0, 16, 1), ("full_attention", 0, 4, 3), ("mamba", 1, 16, 1)]
    fine = [event for event in longer if isinstance(event, Stored)][1]
    assert fine.tokens == tuple(range(8, 20))
    assert fine.parent is not None
    assert sum(bool(covers) for _, covers in engine.fine.rows()) == 4


def test_fine_blocks_go_with_the_last_coarse_block_that_covers_them() -> None:
    engine = _hybrid(num_blocks=9)
    _run(engine, _request((*range(8), *range(100, 112))))
    shared = [digest for digest, covers in engine.fine.rows() if covers]
    _run(engine, _request((*range(8), *range(200, 212))))
    assert [len(covers) for digest, covers in engine.fine.rows() if digest in shared] == [2, 2, 1, 1]
    batches = _run(engine, _request(range(300, 349)))
    assert _removed(batches)
    coarse = {digest for (group, digest), _ in engine.pool.copies() if group == 0}
    covering = {cover for _, covers in engine.fine.rows() for cover in covers}
    assert covering == coarse
    assert engine.reset_prefix_cache()
    assert len(engine.fine) == 0


def test_fine_blocks_must_divide_coarse_ones() -> None:
    with pytest.raises(ValueError, match="must divide"):
        EngineSettings(block_size=100, fine_block_size=64)


def test_a_pulled_prompt_evicts_when_it_is_asked_for_and_is_stored_when_it_is_there() -> None:
    engine = _engine(num_blocks=5, receives=True, pull_steps=3)
    _run(engine, _request(range(100, 112)))
    batches = _run(engine, _request(range(12)))
    # All of a pool of four blocks; the last block is whole once the last token is computed here.
    assert [len(_removed([batch])) for batch in batches] == [2, 0, 0, 0]
    assert [[len(stored.digests) for stored in _stored([batch])] for batch in batches] == [[], [], [], [2, 1]]
    counters = engine.counters
    assert (counters.pulled, counters.external_hits, counters.computed, counters.generated) == (24, 24, 0, 2)
    assert counters.finished_requests == 2


def test_what_is_there_is_not_pulled_again() -> None:
    engine = _engine(receives=True)
    _run(engine, _request(range(10)))
    [stored] = _stored(_run(engine, _request(range(18))))
    assert (len(stored.digests), engine.counters.hits, engine.counters.pulled) == (2, 8, 10 + 10)
    assert [request.prompt for request in engine.finished] == [tuple(range(18))]


def test_who_pulls_has_neither_two_block_sizes_nor_a_cpu_tier() -> None:
    for other in ({"cpu_blocks": 4}, {"fine_block_size": 2}):
        with pytest.raises(ValueError, match="an engine that pulls its prompts"):
            _engine(receives=True, **other)
