"""Streams of real engines: the index knows what the engine had cached, after each batch and in the end."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from connectors.normalise.normaliser import Normaliser
from pipeline.index.following.partition import IndexedPartition
from pipeline.index.following.sources import Sources
from pipeline.index.index import Index
from pipeline.index.questions.question import Question
from pipeline.verify.replica.source import SourceRecount
from schemas.events import Batch, EventsRecord, Opened, Stored
from schemas.hashes import unpack_hashes
from schemas.settings import Worker
from tests.support.holders import held_by_each, of_rank
from tests.support.inputs.captures import NAMES, captured_frames, captured_truth
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
    normaliser = Normaliser(max_frame_bytes=1 << 24)
    sources = Sources()
    partition = IndexedPartition(0, Worker(), sources)
    sizes: dict[int, int] = {}
    parents: dict[int, int] = {}
    windows: dict[int, int] = {}
    engine_said = {row[0]: row[1] for row in truth["checkpoints"]}
    recount, rng, moments = SourceRecount(name, 0, Worker()), random.Random(name), 0
    index, question = Index(sources), Question("m", block_hashes=[])
    for offset, (_, number, payload) in enumerate(captured_frames(name)):
        seq = int.from_bytes(number, "big")
        batch = normaliser.normalise(payload, seq=seq, received_at=1.9e9)
        opening = [] if offset else [Batch(None, batch.ts, batch.ts, [Opened(0, complete=True)])]
        record = EventsRecord(name, "m", "d", 0, 1, [*opening, batch])
        partition.apply(offset, record)
        partition.settle()
        recount.apply(offset, record)
        heads = [pool.head for pool in partition.sources[name, 0].pools if pool.head.medium == "gpu"]
        counted = "entries" if truth["engine"] == "sglang" else "blocks"
        assert sum(sum(getattr(head, counted)) for head in heads) == engine_said[seq]
        for event in batch.events:
            if isinstance(event, Stored) and event.medium == "gpu":
                before = int.from_bytes(event.parent, "big") if event.parent else 0
                for block in unpack_hashes(event.hashes):
                    sizes[block], parents[block], before = event.block_size, before, block
                windows[event.group_idx] = event.sliding_window or 0
        if sizes and offset % ASKED_EVERY == 0:
            chain = chain_to(rng.choice([*sizes]), parents)
            looks_back = {name: windows if len(windows) > 1 else {}}
            expected = held_by_each([recount], chain, looks_back).get((name, 0))
            told = index.answer(question, index.scopes_of(question), [*chain], 0.0).instances.get(name)
            assert (told and of_rank(told.ranks["0"])) == expected
            moments += 1
    assert moments >= len(engine_said) // ASKED_EVERY

    cached: defaultdict[int, set[int]] = defaultdict(set)
    for row in truth["final_cached"]:
        group, shown = (0, row[1]) if truth["engine"] == "sglang" else row[:2]
        digest = bytes.fromhex(shown)[-8:] if isinstance(shown, str) else None
        cached[group].add(int.from_bytes(digest, "big") if digest is not None else shown % 2**64)
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
        answer = index.answer(question, index.scopes_of(question), [*chain], 0.0)
        tokens = answer.scores.get(name, {}).get("0", 0)
        assert tokens == sum(sizes[block] for block in chain[:usable])
        asked, matched = asked + 1, matched + (usable > 0)
    assert asked > 50
    assert matched > 10
