"""Moments of the past, from the log alone, against a recount of the records that were there by then."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import time
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

import msgspec
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from connectors.kafka.errors import TopicMissing
from connectors.kafka.topics import topic_name
from pipeline.index.following.past import past
from pipeline.index.questions.question import Question
from pipeline.verify.replica.copies import Copies
from pipeline.verify.replica.source import SourceRecount
from schemas.events import EventsRecord
from tests.integration.pipeline.index.test_service import chains, fleet, recounted, told
from tests.support import holders
from tests.support.holders import held_by_each
from tests.support.index_service import PARTITIONS, IndexLog, index_process
from tests.support.processes import KVLENS, as_toml
from tests.support.suite.servers import Shared


def between() -> float:
    """Return a moment that is later than all before it and earlier than all after it, for a log in ms."""
    reached = time.time() + 0.005
    while time.time() < reached:
        pass
    moment = reached + 0.005
    while time.time() < moment + 0.005:
        pass
    return moment


def published(log: IndexLog, records: list[EventsRecord], parts: int) -> list[float]:
    """Write the log in parts; return a moment after each."""
    size = -(-len(records) // parts)
    moments = []
    for begin in range(0, len(records), size):
        log.produce(records[begin : begin + size], applied=True)
        log.checkpoint()
        moments.append(between())
    return moments


@pytest.mark.night
def test_each_moment_is_what_a_recount_of_its_records_says(log: IndexLog, tmp_path: Path) -> None:
    walks, records = fleet(31, 60)
    moments = published(log, records, 6)
    asked = chains(walks, random.Random(3))
    size = -(-len(records) // 6)
    for number, moment in enumerate(moments, 1):
        found = asyncio.run(past(log.settings, moment))
        recounts = recounted(records[: number * size])
        assert (found.records, found.whole_from) == (len(records[: number * size]), None)
        question = Question("m", block_hashes=[])
        for chain in asked:
            answer = found.index.answer(question, found.index.scopes_of(question), [*chain], moment)
            assert holders.told(answer.instances) == held_by_each(recounts, chain)

    first, last = (asyncio.run(past(log.settings, moment)).held() for moment in (moments[1], moments[-1]))
    for held, there in ((first, recounted(records[: 2 * size])), (last, recounted(records))):
        assert there
        for key, blocks in resident(there).items():
            assert held.get(key, set()) == blocks
    config = tmp_path / "kvlens.toml"
    config.write_text(as_toml(log.settings))
    both = (recounted(records[: 2 * size]), recounted(records))
    chain = max(asked, key=lambda one: min(len(held_by_each(each, one)) for each in both))
    prompt = [part for block in chain for part in ("--hash", str(block))]
    options = ["--against", shown(moments[-1]), "--json", "--config", str(config), "--model", "m", *prompt]
    command = [*KVLENS, "at", shown(moments[1]), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    for name, of in zip(("holders", "holders_against"), both, strict=True):
        there = held_by_each(of, chain)
        assert there
        assert {
            (one["replica"], one["dp_rank"]): (one["gpu"], one["cpu"], one["disk"]) for one in said[name]
        } == {key: each[:3] for key, each in there.items()}
    rows = said["held"]
    assert {(row["replica"], row["dp_rank"], row["medium"]) for row in rows} == {*first, *last}
    for row in rows:
        key = (row["replica"], row["dp_rank"], row["medium"])
        before, after = first.get(key, set()), last.get(key, set())
        if before is None or after is None:
            assert (row["came"], row["went"]) == (None, None)
        else:
            assert (row["came"], row["went"]) == (len(after - before), len(before - after))


def shown(moment: float) -> str:
    return datetime.fromtimestamp(moment, timezone.utc).isoformat()


def resident(recounts: list[SourceRecount]) -> dict[tuple[str, int, str], set[tuple[int, int]] | None]:
    """Return (group, hash) of all blocks by source and medium; None where a pool has two granularities."""
    found: dict[tuple[str, int, str], set[tuple[int, int]] | None] = {}
    for source in recounts:
        for (medium, group), pool in source.pools.items():
            known = found.setdefault((source.replica, source.dp_rank, medium), set())
            if not isinstance(pool, Copies):
                found[source.replica, source.dp_rank, medium] = None
            elif known is not None:
                known |= {(group, block) for block in pool.blocks}
    return found


def test_an_index_of_a_moment_answers_like_one_that_stood_there(
    log: IndexLog, shared: Shared, tmp_path: Path
) -> None:
    walks, records = fleet(43, 40)
    moments = published(log, records, 4)
    asked = chains(walks, random.Random(5))
    recounts = recounted(records[: 2 * -(-len(records) // 4)])
    at = shown(moments[1])
    with closing(index_process(log.settings, tmp_path, "then", "--at", at, shared=shared)) as index:
        index.wait_said("read the log up to the moment")
        status, answer = index.ask("query_by_hash", {"model_name": "m", "prompts": asked})
        assert status == 200, answer
        for chain, each in zip(asked, answer["answers"], strict=True):
            assert told(each["instances"]) == held_by_each(recounts, chain)
        state = {
            "age_seconds": 0,
            "stale": False,
            "lag_records": 0,
            "at": pytest.approx(moments[1], abs=1e-5),
        }
        assert answer["index"] == state
        log.produce(walks[0].records(5))
        status, after = index.ask("query_by_hash", {"model_name": "m", "prompts": asked})
        assert (status, after) == (200, answer)
        replicas = asyncio.run(past(log.settings, moments[1])).index.replicas(moments[1])
        assert index.ask("replicas")[1]["replicas"] == msgspec.to_builtins(replicas)


def test_topics_of_another_prefix_are_missing_not_empty(log: IndexLog) -> None:
    kafka = msgspec.structs.replace(log.settings.kafka, topic_prefix="misspelt")
    with pytest.raises(TopicMissing, match=r"misspelt\.events\.v1"):
        asyncio.run(past(msgspec.structs.replace(log.settings, kafka=kafka), time.time()))


async def forget(log: IndexLog, records: int) -> None:
    """Let retention take the first records of each partition."""
    admin = AIOKafkaAdminClient(bootstrap_servers=log.settings.kafka.bootstrap_servers)
    await admin.start()
    topic = topic_name(log.settings.kafka, "events")
    ends = {number: state.next_offset for number, state in log.states.items()}
    await admin.delete_records(
        {
            TopicPartition(topic, number): RecordsToDelete(min(records, ends[number]))
            for number in range(PARTITIONS)
            if ends[number]
        }
    )
    await admin.close()


def test_what_the_log_has_lost_is_not_said_to_be_complete(log: IndexLog) -> None:
    _, records = fleet(37, 10)
    began = time.time()
    (moment,) = published(log, records, 1)
    asyncio.run(forget(log, 3))
    found = asyncio.run(past(log.settings, moment))
    assert found.records < len(records)
    assert found.whole_from is not None
    assert began - 1 < found.whole_from <= moment
    told = found.index.replicas(moment)
    assert told
    assert any(one.trust != "complete" for one in told)


def test_where_the_log_does_not_reach_back_to_the_moment_nothing_is_said_to_be_whole(
    log: IndexLog, tmp_path: Path
) -> None:
    """Before the oldest record that is left, and where none is left."""
    _, records = fleet(37, 10)
    before = between()
    (moment,) = published(log, records, 1)
    asyncio.run(forget(log, 1))
    early = asyncio.run(past(log.settings, before))
    late = asyncio.run(past(log.settings, moment))
    assert (early.records, early.whole_from) == (0, late.whole_from)
    assert early.whole_from is not None
    assert before < early.whole_from <= moment
    config = tmp_path / "kvlens.toml"
    config.write_text(as_toml(log.settings))
    command = [*KVLENS, "at", shown(before), "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "the log reaches back to" in done.stdout
    asyncio.run(forget(log, len(records)))
    nothing = asyncio.run(past(log.settings, moment))
    assert (nothing.records, nothing.whole_from) == (0, moment)
