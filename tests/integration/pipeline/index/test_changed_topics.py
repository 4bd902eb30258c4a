"""An index whose topics are deleted and made again, get more partitions, or lose records, while it runs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import pytest

from schemas.events import EventsRecord, Stored
from tests.support.client_partition import client_partition
from tests.support.index_service import PARTITIONS, IndexLog, IndexProcess
from tests.support.inputs.source_walks import Walk
from tests.support.patience import PATIENCE
from tests.support.topics_changed import made_again, more_partitions, records_removed


def records_of(seed: int, count: int, replicas: int = 3) -> list[EventsRecord]:
    walks = [Walk(seed + n, replica=f"r{n}", began=time.time() - 3600) for n in range(replicas)]
    return [*itertools.chain.from_iterable(zip(*(walk.records(count) for walk in walks), strict=False))]


def trusts(index: IndexProcess) -> dict[str, str]:
    status, answer = index.ask("replicas")
    assert status == 200, answer
    return {source["replica"]: source["trust"] for source in answer["replicas"]}


def of_answers(index: IndexProcess, records: list[EventsRecord]) -> Iterator[str]:
    """Give the trust of each source that answers name."""
    stored = [event for record in records for batch in record.batches for event in batch.events]
    hashes = [event.hashes[:8] for event in stored if isinstance(event, Stored)]
    asked = [[int.from_bytes(first, "big")] for first in hashes]
    for start in range(0, len(asked), 100):
        status, answer = index.ask(
            "query_by_hash", {"model_name": "m", "prompts": asked[start : start + 100]}
        )
        assert status == 200, answer
        for each in answer["answers"]:
            for match in each["instances"].values():
                yield from (rank["trust"] for rank in match["ranks"].values())


def wait_for(index: IndexProcess, expected: dict[str, str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while (found := trusts(index)) != expected:
        assert time.monotonic() < deadline, (found, index.said()[-3000:])
        time.sleep(0.1)


@pytest.mark.night
def test_an_events_topic_made_again_is_refused_however_long_it_gets(
    log: IndexLog, start: Callable[..., IndexProcess]
) -> None:
    records = records_of(3, 10)
    log.produce(records, applied=True)
    log.checkpoint()
    index = start()
    made_again(log.settings, ["events"])
    log.produce(records_of(5, 40))  # longer than the old one was
    assert index.process.wait(PATIENCE) == 1
    cause = "events.v1 was deleted and made again"
    assert cause in index.said().splitlines()[-1], index.said()[-2000:]

    index = start(ready=False)
    index.wait_said(cause)
    status, why = index.ask("readyz")
    assert status == 503
    assert "kvlens state rebuild" in why
    assert index.ask("query_by_hash", {"model_name": "m", "block_hashes": [1]})[0] == 503
    assert index.said().count(cause) == 1
    assert '"behind": -' not in index.said()
    # Somebody acts: what the state was is gone, and it goes on by itself.
    made_again(log.settings, ["checkpoints_replica"])
    index.wait_said("caught up with the log")
    assert set(trusts(index)) == {"r0", "r1", "r2"}
    index.stop()


def test_records_that_are_removed_degrade_their_sources_at_once(
    log: IndexLog, start: Callable[..., IndexProcess]
) -> None:
    """Nothing comes afterwards that could show a gap; a source in another partition lost nothing."""
    records = records_of(7, 10, replicas=6)
    log.produce(records, applied=True)
    log.checkpoint()
    more = [record for record in records_of(7, 20, replicas=6)[len(records) :] if record.replica != "r5"]
    log.produce(more)
    partition = {record.replica: client_partition(record.replica, PARTITIONS) for record in records}
    lost = {partition[replica] for replica in partition if replica != "r5"}
    records_removed(log.settings, "events")
    index = start()
    expected = dict.fromkeys(sorted(partition), "degraded")
    if partition["r5"] not in lost:
        untouched = log.states[partition["r5"]].sources["r5", 0]
        expected["r5"] = untouched.overall_trust().trust
    assert set(of_answers(index, records)) <= {"degraded", expected["r5"]}
    wait_for(index, expected)
    said = index.said()
    assert said.count("retention removed records before they were read") == len(lost)
    index.stop()


@pytest.mark.night
def test_more_partitions_are_not_passed_over(log: IndexLog, start: Callable[..., IndexProcess]) -> None:
    log.produce(records_of(9, 3))
    index = start()
    more_partitions(log.settings, "events", 9)
    assert index.process.wait(PATIENCE) == 1
    assert "events.v1 has 9 partitions but 8 are needed" in index.said().splitlines()[-1]
