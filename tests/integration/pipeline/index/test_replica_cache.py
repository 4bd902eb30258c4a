"""The example consumer of the events topic: what it finds is what the index says, block by block."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from connectors.kafka.topics import topic_name
from tests.support.checkout import ROOT
from tests.support.files_as_modules import module_of
from tests.support.index_service import IndexLog, IndexProcess
from tests.support.inputs.generated_logs import shared_log

PATH = ROOT / "deploy" / "examples" / "replica_cache.py"
REPLICAS = 4


def test_it_finds_what_the_index_knows(log: IndexLog, start: Callable[..., IndexProcess]) -> None:
    example = module_of(PATH)
    records = shared_log(3, replicas=REPLICAS, rounds=40, began=time.time() - 600)
    log.produce(records, applied=True)
    index = start()
    kafka = log.settings.kafka
    caches = asyncio.run(example.read(kafka.bootstrap_servers, topic_name(kafka, "events")))
    held = {replica: {block.hex() for _, block in cache} for (replica, _), cache in caches.items() if cache}
    blocks = sorted(set().union(*held.values()))
    assert len(blocks) > 100
    status, answer = index.ask("query_by_hash", {"model_name": "m", "prompts": [[one] for one in blocks]})
    assert status == 200
    known: dict[str, set[str]] = {}
    for block, each in zip(blocks, answer["answers"], strict=True):
        for replica in each["instances"]:
            known.setdefault(replica, set()).add(block)
    assert known == held
    _, answer = index.ask("replicas")
    assert {one["replica"]: one["blocks"]["gpu"] for one in answer["replicas"]} == {
        replica: len(cache) for (replica, _), cache in caches.items()
    }
