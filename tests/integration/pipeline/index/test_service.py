"""The index beside a log: warm starts, kill -9, shares, and what it says while it is behind."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from pipeline.index.answers import InstanceMatch
from pipeline.verify.replica.source import SourceRecount
from schemas.events import EventsRecord
from schemas.settings import Worker
from tests.support import holders
from tests.support.holders import Held, held_by_each
from tests.support.index_service import IndexLog, IndexProcess
from tests.support.inputs.source_walks import Walk

DEADLINE = 60.0


def fleet(seed: int, records: int, sources: int = 5) -> tuple[list[Walk], list[EventsRecord]]:
    """Return walks that share their blocks, and what they published in turns."""
    walks = [
        Walk(seed + n, hybrid=n % 2 == 1, replica=f"r{n}", began=time.time() - 3600) for n in range(sources)
    ]
    for walk in walks[1:]:
        walk.pool, walk.chains = walks[0].pool, walks[0].chains
    turns = zip(*(walk.records(records) for walk in walks), strict=False)
    return walks, [*itertools.chain.from_iterable(turns)]


def recounted(records: Sequence[EventsRecord]) -> list[SourceRecount]:
    recounts: dict[tuple[str, int], SourceRecount] = {}
    for offset, record in enumerate(records):
        key = (record.replica, record.dp_rank)
        recounts.setdefault(key, SourceRecount(*key, Worker())).apply(offset, record)
    return [one for one in recounts.values() if one.life.model == "m"]


def chains(walks: Sequence[Walk], rng: random.Random) -> list[list[int]]:
    asked = [rng.sample(walks[0].pool, rng.randint(1, 6)) for _ in range(20)]
    prompts = [[*chain] for pair in walks[0].chains for chain in pair if chain]
    return asked + rng.sample(prompts, min(20, len(prompts)))


def told(instances: dict[str, Any]) -> dict[tuple[str, int], Held]:
    return holders.told(msgspec.convert(instances, dict[str, InstanceMatch]))


def answers(index: IndexProcess, asked: list[list[int]]) -> list[dict[tuple[str, int], Held]]:
    status, answer = index.ask("query_by_hash", {"model_name": "m", "prompts": asked})
    assert status == 200, answer
    assert not answer["index"]["stale"]
    return [told(each["instances"]) for each in answer["answers"]]


def wait_applied(index: IndexProcess, records: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while True:
        _, page = index.ask("metrics")
        applied = sum(
            float(line.split()[1])
            for line in page.splitlines()
            if line.startswith("kvlens_index_records_total ")
        )
        if applied >= records:
            return
        assert time.monotonic() < deadline, page
        time.sleep(0.02)


@pytest.mark.night
def test_answers_after_each_kill_are_those_of_a_recount(
    log: IndexLog, start: Callable[..., IndexProcess]
) -> None:
    walks, records = fleet(5, 60)
    rng = random.Random(1)
    third = len(records) // 3
    log.produce(records[:third], applied=True)
    log.checkpoint()
    index = start()
    asked = chains(walks, rng)
    assert answers(index, asked) == [held_by_each(recounted(records[:third]), one) for one in asked]
    index.kill()

    log.produce(records[third : 2 * third], applied=True)
    index = start()
    expected = [held_by_each(recounted(records[: 2 * third]), one) for one in asked]
    assert answers(index, asked) == expected
    log.checkpoint()
    log.produce(records[2 * third :])
    wait_applied(index, len(records) - third)
    index.kill()

    index = start()
    expected = [held_by_each(recounted(records), one) for one in asked]
    assert any(expected)
    assert answers(index, asked) == expected
    said = index.said()
    assert "checkpoint loaded" in said
    index.stop()


@pytest.mark.night
def test_shares_know_all_replicas_together(log: IndexLog, start: Callable[..., IndexProcess]) -> None:
    walks, records = fleet(17, 25, sources=7)
    log.produce(records, applied=True)
    indexes = [start(share=f"{number}/2") for number in range(2)]
    asked = chains(walks, random.Random(2))
    known = [{source["replica"] for source in index.ask("replicas")[1]["replicas"]} for index in indexes]
    for index, replicas in zip(indexes, known, strict=True):
        followed = recounted([record for record in records if record.replica in replicas])
        assert answers(index, asked) == [held_by_each(followed, one) for one in asked]
    assert known[0] | known[1] == {walk.replica for walk in walks}
    assert not known[0] & known[1]


def test_nothing_is_answered_before_the_log_is_read(
    log: IndexLog, start: Callable[..., IndexProcess]
) -> None:
    _, records = fleet(23, 5)
    log.produce(records, applied=True)
    index = start(ready=False)
    statuses = []
    deadline = time.monotonic() + DEADLINE
    while True:
        status, answer = index.ask("query_by_hash", {"model_name": "m", "block_hashes": [1]})
        ready, why = index.ask("readyz")
        statuses.append(status)
        if status == 200:
            break
        assert (status, answer["error"]) == (503, "not_ready")
        assert time.monotonic() < deadline, index.said()
    assert index.ask("readyz") == (200, "ok\n")
    assert statuses[0] == 503
    assert index.ask("healthz") == (200, "ok\n")
    assert answer["instances"] == {}
    assert (ready, why) in ((200, "ok\n"), (503, why))
