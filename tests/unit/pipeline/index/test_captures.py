"""Streams of real engines: the index knows what the engine had cached, after each batch and in the end."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from pipeline.verify.replica.source import SourceRecount
from schemas.events import Stored
from schemas.hashes import unpack_hashes
from schemas.settings import Worker
from tests.support.following_index import FollowingIndex
from tests.support.holders import held_by_each, of_rank
from tests.support.inputs.captures import NAMES, captured_final, captured_records, captured_truth
from tests.support.inputs.event_records import events_in
from tests.support.suite.night import first_by_day

ASKED_EVERY = 8
"""Batches: more than 1,000 moments of all captures."""


def chain_to(last: int, parents: dict[int, int]) -> list[int]:
    """Return the beginning of a prompt that ends with this block."""
    chain = [last]
    while parents[chain[-1]] in parents:
        chain.append(parents[chain[-1]])
    return chain[::-1]


@pytest.mark.parametrize("name", first_by_day(NAMES, 3))
def test_prompts_are_matched_as_far_as_the_engine_has_them(name: str) -> None:
    truth = captured_truth(name)
    following = FollowingIndex()
    sizes: dict[int, int] = {}
    parents: dict[int, int] = {}
    windows: dict[int, int] = {}
    engine_said = {row[0]: row[1] for row in truth["checkpoints"]}
    recount, rng, moments = SourceRecount(name, 0, Worker()), random.Random(name), 0
    for offset, said in enumerate(captured_records(name)):
        following.partition.apply(offset, said)
        following.partition.settle()
        recount.apply(offset, said)
        heads = [
            pool.head for pool in following.partition.sources[name, 0].pools if pool.head.medium == "gpu"
        ]
        counted = "entries" if truth["engine"] == "sglang" else "blocks"
        assert sum(sum(getattr(head, counted)) for head in heads) == engine_said[said.last_seq]
        for event in events_in([said]):
            if isinstance(event, Stored) and event.medium == "gpu":
                before = int.from_bytes(event.parent, "big") if event.parent else 0
                for block in unpack_hashes(event.hashes):
                    sizes[block], parents[block], before = event.block_size, before, block
                windows[event.group_idx] = event.sliding_window or 0
        if sizes and offset % ASKED_EVERY == 0:
            chain = chain_to(rng.choice([*sizes]), parents)
            looks_back = {name: windows if len(windows) > 1 else {}}
            expected = held_by_each([recount], chain, looks_back).get((name, 0))
            told = following.ask(*chain).get(name)
            assert (told and of_rank(told.ranks["0"])) == expected
            moments += 1
    assert moments >= len(engine_said) // ASKED_EVERY

    cached: defaultdict[int, set[int]] = defaultdict(set)
    for group, block in captured_final(name):
        cached[group].add(block)
    asked = matched = 0
    for last in [*sizes][::7]:
        chain = chain_to(last, parents)
        usable = 0
        for length in range(1, len(chain) + 1):
            size = sizes[chain[0]]
            needed = {
                group: length if not window else min(length, -(-(window - 1) // size))
                for group, window in windows.items()
            }
            if all({*chain[length - needed[group] : length]} <= cached[group] for group in windows):
                usable = length
        match = following.ask(*chain).get(name)
        assert (match.dp.get("0", 0) if match else 0) == sum(sizes[block] for block in chain[:usable])
        asked, matched = asked + 1, matched + (usable > 0)
    assert asked > 50
    assert matched > 10
