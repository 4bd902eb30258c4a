"""An engine's truth against reference counts over its wire bytes, at every batch and in every era."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.simulator.engine.scheduler import Engine
from pipeline.simulator.engine.settings import HYBRID_GROUPS, EngineSettings
from pipeline.simulator.engine.truth import checkpoint, engine_truth
from pipeline.simulator.traffic.requests import Request
from pipeline.simulator.traffic.workload import WorkloadSettings, arrivals
from pipeline.simulator.wire.encoding import encoded_batch
from pipeline.simulator.wire.eras import ERAS
from pipeline.simulator.wire.hashing import HASH_FORMS, HashForm
from tests.support.suite.night import examples
from tests.support.wire import ReferenceCounts, events_of

TRAFFIC = WorkloadSettings(
    seed=5,
    rate=2.0,
    system_prompts=3,
    system_prompt_tokens=96,
    mean_user_tokens=60,
    mean_output_tokens=30,
    max_prompt_tokens=1200,
    canned_share=0.4,
    canned_questions=2,
    lora_share=0.3,
)
SETTINGS = EngineSettings(num_blocks=140, block_size=16, step_tokens=256, decode_tokens=4)
HYBRID = EngineSettings(
    num_blocks=60, block_size=128, groups=HYBRID_GROUPS, fine_block_size=16, step_tokens=300, decode_tokens=4
)


def _compared_at_every_batch(
    engine: Engine,
    era_name: str,
    counts: Any,
    requests: list[Request],
    form: HashForm | None = None,
    reset_every: int = 60,
) -> int:
    """Run all requests with a few at a time and resets between; return the number of batches compared."""
    era = ERAS[era_name]
    form = form or era.hash_form
    batches = 0
    queue = list(reversed(requests))
    while queue or engine.busy:
        for _ in range(min(4, len(queue)) if not engine.busy else 0):
            engine.submit(queue.pop())
        events = engine.step()
        if events:
            counts.apply(encoded_batch(era, 0.0, events, 0, form))
            seen = engine_truth(engine, form, batches)
            assert counts.rows("gpu") == seen["resident"]["gpu"]
            assert counts.rows("cpu") == seen["resident"]["cpu"]
            gpu = [copies for (medium, _, _), copies in counts.copies.items() if medium == "gpu"]
            assert checkpoint(engine, batches)[:4] == [batches, len(gpu), sum(gpu), len(engine.cpu)]
            assert counts.clears == engine.counters.clears
            batches += 1
        if not engine.busy and batches % reset_every == 0:
            assert engine.reset_prefix_cache()
    return batches


@pytest.mark.parametrize("era", ERAS)
def test_reference_counts_agree_in_every_era(era: str) -> None:
    requests = [request for _, request in islice(arrivals(TRAFFIC), 60)]
    engine = Engine(replace(SETTINGS, cpu_blocks=90 if ERAS[era].media_known else 0))
    assert _compared_at_every_batch(engine, era, ReferenceCounts(), requests) > 100
    counters = engine.counters
    assert counters.evicted_blocks > 100
    assert counters.duplicate_blocks > 5
    assert counters.stored_blocks - counters.evicted_blocks - counters.cleared_blocks == engine.pool.physical


@pytest.mark.parametrize("form", HASH_FORMS)
def test_reference_counts_agree_in_every_hash_form(form: HashForm) -> None:
    requests = [request for _, request in islice(arrivals(TRAFFIC), 30)]
    counts = ReferenceCounts()
    _compared_at_every_batch(
        Engine(replace(SETTINGS, cpu_blocks=90)), "vllm-0.22", counts, requests, form=form
    )
    kinds = Counter((medium, type(shown)) for medium, _, shown in counts.copies)
    assert set(kinds) == {
        ("gpu", bytes if form.startswith("bytes") else int),
        ("cpu", int if form in ("uint64", "int64") else bytes),
    }


@examples(15)
@given(st.integers(0, 10_000), st.integers(80, 300), st.integers(0, 200), st.integers(30, 600))
def test_reference_counts_agree_on_random_engines(
    seed: int, num_blocks: int, cpu_blocks: int, step_tokens: int
) -> None:
    counts = ReferenceCounts()
    requests = [request for _, request in islice(arrivals(replace(TRAFFIC, seed=seed)), 12)]
    engine = Engine(replace(SETTINGS, num_blocks=num_blocks, cpu_blocks=cpu_blocks, step_tokens=step_tokens))
    _compared_at_every_batch(engine, "vllm-0.33", counts, requests, reset_every=7)


def test_hybrid_engines_fine_blocks_are_those_a_consumer_can_know() -> None:
    requests = [request for _, request in islice(arrivals(TRAFFIC), 80)]
    counts = ReferenceCounts(16)
    engine = Engine(HYBRID)
    _compared_at_every_batch(engine, "vllm-0.33", counts, requests, reset_every=40)
    assert engine.counters.evicted_blocks > 50
    seen = engine_truth(engine, "uint64", 0)
    resident = {shown for group, shown, _ in seen["resident"]["gpu"] if group == 0}
    announced = {shown for _, shown in counts.fine}
    assert announced.isdisjoint(resident)
    assert {shown for _, shown, _ in seen["fine"]} <= announced
    assert {cover for _, _, covers in seen["fine"] for cover in covers} == resident
    assert any(not covers for _, _, covers in seen["fine"])
    assert seen["gpu_entries_by_block_size"] == {
        "128": sum(copies for _, _, copies in seen["resident"]["gpu"]),
        "16": len(seen["fine"]),
    }


def test_a_hybrid_engine_announces_no_live_fine_block_twice() -> None:
    engine = Engine(HYBRID)
    requests = [request for _, request in islice(arrivals(TRAFFIC), 80)]
    followers = Counter[tuple[int, int]]()
    for request in requests:
        engine.submit(request)
        while engine.busy:
            before = {shown for _, shown, _ in engine_truth(engine, "uint64", 0)["fine"]}
            events = engine.step()
            wired = events_of(encoded_batch(ERAS["vllm-0.33"], 0.0, events)) if events else []
            evicted = any(event["type"] == "BlockRemoved" for event in wired)
            stored = [event for event in wired if event["type"] == "BlockStored"]
            for event, follower in pairwise(stored):
                if (event["group_idx"], event["block_size"]) == (0, 128):
                    followers[follower["group_idx"], follower["block_size"]] += 1
            for event in stored:
                if event["block_size"] == 16:
                    assert event["group_idx"] == 0
                    if not evicted:
                        assert before.isdisjoint(event["block_hashes"])
    # A coarse attention block is followed directly by the fine ones of the same step.
    assert set(followers) == {(0, 16)}
    assert followers[0, 16] > 20
