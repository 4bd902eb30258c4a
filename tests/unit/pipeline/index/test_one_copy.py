"""Engines that know one copy of each block: what they announce again is gone when removed once."""

from __future__ import annotations

import pytest

from pipeline.index.following.partition import IndexedPartition
from pipeline.index.following.sources import Sources
from pipeline.index.index import Index
from pipeline.index.questions.question import Question
from schemas.events import Batch, Event, EventsRecord, Opened, Removed, Stored
from schemas.settings import Worker
from tests.support.inputs.packed import packed

NOW = 1_800_000_000.0


@pytest.mark.parametrize(("one_copy", "matched"), [(True, 0), (False, 16)])
def test_announced_twice_and_removed_once(one_copy: bool, matched: int) -> None:
    sources = Sources()
    partition = IndexedPartition(0, Worker(), sources)
    events: list[Event] = [
        Stored(packed(1, 2), 16, 32, None, "gpu"),
        Stored(packed(1, 2), 16, 32, None, "gpu"),
        Stored(packed(7), 16, 16, None, "gpu"),
        Removed(packed(1), "gpu"),
    ]
    batches = [
        Batch(None, NOW, NOW, [Opened(0, complete=True)]),
        *(Batch(number, NOW, NOW, [event], 1) for number, event in enumerate(events)),
    ]
    partition.apply(0, EventsRecord("r", "m", "d", 0, 1, batches, engine="atom", one_copy=one_copy))
    partition.settle()
    index, question = Index(sources), Question("m", block_hashes=[])
    scopes = index.scopes_of(question)
    assert index.answer(question, scopes, [1], NOW).scores.get("r", {}).get("0", 0) == matched
    assert index.answer(question, scopes, [7], NOW).scores["r"]["0"] == 16
