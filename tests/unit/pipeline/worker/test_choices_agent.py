"""The agent of choices, and partitions that change hands: on consumers that need no Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from msgspec.structs import replace

from pipeline.errors import KafkaUnavailable
from pipeline.kafka.committed import Committed
from pipeline.worker.choices import agent as module
from pipeline.worker.choices.agent import ChoicesAgent
from pipeline.worker.sink.sink import Sink
from pipeline.worker.telemetry import WorkerMetrics
from schemas.settings import Settings

PLACE = TopicPartition("kvlens.choices.v1", 0)
RECORD = SimpleNamespace(value=None, headers=(), key=None, timestamp=0, offset=7)
SETTINGS = Settings(kafka=replace(Settings().kafka, figures=False))


class Consumer:
    """Is assigned PLACE by its first fetch, which gives a record, as aiokafka does: beside the listener."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, Any] = {}
        self.assigned = {PLACE}
        self.leaves = False
        """Whether PLACE is given up while offsets are committed."""
        self._listening: asyncio.Task[None] | None = None

    def subscribe(self, topics: Sequence[str], listener: ChoicesAgent) -> None:
        self._listener = listener

    def assignment(self) -> set[TopicPartition]:
        return self.assigned

    async def beginning_offsets(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 5)

    async def getmany(self, **_: Any) -> Mapping[TopicPartition, Sequence[Any]]:
        if self._listening is not None:
            await asyncio.sleep(3600)
        self._listening = asyncio.create_task(self._listener.on_partitions_assigned([PLACE]))
        await asyncio.sleep(0)
        return {PLACE: [RECORD]}

    async def commit(self, done: Mapping[TopicPartition, Any]) -> None:
        self.committed |= done
        if self.leaves:
            self.assigned = set()

    def highwater(self, place: TopicPartition) -> int:
        return 9


class Group:
    """Consumers that come one after the other, and what the group is asked for."""

    def __init__(self) -> None:
        self.answers: Iterator[Committed | Exception] = iter(())
        self.metrics = WorkerMetrics()
        self.consumers: list[Consumer] = []
        sink = Sink(self.metrics, store=None, figures=None)
        self.agent = ChoicesAgent(
            SETTINGS, sink, self.metrics, topic_id="", every=0.0, joined=lambda *_: None
        )

    @asynccontextmanager
    async def started(self, **_: Any) -> AsyncIterator[Consumer]:
        self.consumers.append(Consumer())
        yield self.consumers[-1]

    async def committed_before(self, *_: Any) -> dict[int, Committed]:
        await asyncio.sleep(0)
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return {0: answer}

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, {"agent": "choices", **labels})


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    found = Group()
    monkeypatch.setattr(module, "started_consumer", found.started)
    monkeypatch.setattr(module, "committed_before", found.committed_before)
    monkeypatch.setattr(module, "member_id", lambda _: "one")
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.0)
    return found


async def run(group: Group) -> None:
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(group.agent.run(), 0.2)


async def test_nothing_is_committed_before_it_is_known_what_the_log_lacks(group: Group) -> None:
    group.answers = iter([KafkaUnavailable("kafka:9092", "gone"), Committed(2)])
    await run(group)
    failed, other = group.consumers
    assert not failed.committed
    assert other.committed[PLACE].offset == 8
    assert group.metric("kvlens_worker_records_lost_total") == 3


async def test_what_is_no_longer_assigned_has_no_gauges(group: Group) -> None:
    group.answers = iter([Committed(5), Committed(5)])
    await run(group)
    assert group.consumers[0].committed  # which sets them, and then the consumer stops
    assert group.metric("kvlens_worker_lag_records", partition="0") is None
    given_up = Consumer()
    given_up.leaves = True
    group.consumers.append(given_up)
    await group.agent._commit(cast(Any, given_up), {PLACE: [RECORD]})
    assert given_up.committed
    assert group.metric("kvlens_worker_next_offset", partition="0") is None
