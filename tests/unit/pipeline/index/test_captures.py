"""Streams of real engines: what the index knows in the end is what the engine itself had cached."""

from __future__ import annotations

from collections import defaultdict

import pytest

from connectors.normalise.normaliser import Normaliser
from pipeline.index.index import Index
from pipeline.index.partition import IndexedPartition
from pipeline.index.question import Question
from pipeline.index.sources import Sources
from schemas.events import Batch, EventsRecord, Opened, Stored
from schemas.hashes import unpack_hashes
from schemas.settings import Worker
from tests.support.inputs.captures import NAMES, captured_frames, captured_truth


@pytest.mark.parametrize("name", NAMES)
def test_prompts_are_matched_as_far_as_the_engine_has_them(name: str) -> None:
    truth = captured_truth(name)
    normaliser = Normaliser(max_frame_bytes=1 << 24)
    sources = Sources()
    partition = IndexedPartition(0, Worker(), sources)
    sizes: dict[int, int] = {}
    parents: dict[int, int] = {}
    windows: dict[int, int] = {}
    for offset, (_, number, payload) in enumerate(captured_frames(name)):
        batch = normaliser.normalise(payload, seq=int.from_bytes(number, "big"), received_at=1.9e9)
        opening = [] if offset else [Batch(None, batch.ts, batch.ts, [Opened(0, complete=True)])]
        partition.apply(offset, EventsRecord(name, "m", "d", 0, 1, [*opening, batch]))
        for event in batch.events:
            if isinstance(event, Stored) and event.medium == "gpu":
                before = int.from_bytes(event.parent, "big") if event.parent else 0
                for block in unpack_hashes(event.hashes):
                    sizes[block], parents[block], before = event.block_size, before, block
                windows[event.group_idx] = event.sliding_window or 0
    partition.settle()

    cached: defaultdict[int, set[int]] = defaultdict(set)
    for row in truth["final_cached"]:
        group, shown = (0, row[1]) if truth["engine"] == "sglang" else row[:2]
        digest = bytes.fromhex(shown)[-8:] if isinstance(shown, str) else None
        cached[group].add(int.from_bytes(digest, "big") if digest is not None else shown % 2**64)
    index, question = Index(sources), Question("m", block_hashes=[])
    asked = matched = 0
    for last in [*sizes][::7]:
        chain = [last]
        while parents[chain[-1]] in parents:
            chain.append(parents[chain[-1]])
        chain.reverse()
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
