"""The demo put together: fleet, stack, and the figures read back from the tables."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aiokafka import TopicPartition
from clickhouse_connect.driver.client import Client

from connectors.kafka.consumer import started_consumer
from connectors.kafka.errors import KAFKA_FAILURES
from connectors.kafka.security import client_options
from connectors.process.errors import OperatorError
from pipeline.clickhouse.client import connect, store_unavailable
from pipeline.kafka.topics import describe
from pipeline.local.advice_watch import AdviceWatch
from pipeline.local.demo.figures import count_events, count_rows, read_health, read_pools
from pipeline.local.demo.fleet import start_fleet
from pipeline.local.demo.freshness import FreshnessMeter, PublicationProbe
from pipeline.local.demo.question import IndexQuestion
from pipeline.local.demo.story import ON_PURPOSE, STORY_SECONDS, Narrator
from pipeline.local.demo.terminal import plain, screen, story_page
from pipeline.local.directory import DataDirectory
from pipeline.local.processes.supervisor import Supervisor
from pipeline.local.stack import Stack, Steps
from pipeline.settings.loading import LoadedSettings
from schemas.settings import Settings, rank_endpoint

_QUERY_SECONDS = 0.25
_NOTES_SHOWN = 7
_ADVICE_SECONDS = 10.0
_INDEX_SECONDS = 60.0


@dataclass(frozen=True)
class Moment:
    """The figures at one time, as text."""

    screen: str
    plain: str


class Demo:
    """The demo: call `start_fleet`, `start`, iterate over `moments`, call `summary`, and always `close`."""

    _narrator: Narrator
    _stack: Stack
    _client: Client
    _question: IndexQuestion
    _advice: AdviceWatch
    _probe: PublicationProbe

    def __init__(self, directory: DataDirectory, steps: Steps) -> None:
        self._directory = directory
        self._notes: list[str] = []
        self._steps = steps
        self._supervisor = Supervisor(self._note)
        self._to_close = ExitStack()
        self._to_close.callback(self._supervisor.stop)
        self._meter = FreshnessMeter()
        self._stopped = False

    def start_fleet(self) -> Path:
        """Start the engines; return the kvlens.toml that points at them."""
        self._steps.step("starting simulated engines")
        self._narrator = Narrator(self._directory.logs)
        config = start_fleet(self._supervisor, self._directory)
        self._steps.tell("simulated engines are running")
        return config

    def start(self, loaded: LoadedSettings, config: Path) -> None:
        """Start everything else and wait until it is ready."""
        endpoints = [
            ((replica.id, rank), rank_endpoint(replica.endpoint, rank))
            for replica in loaded.settings.replicas
            for rank in replica.ranks
        ]
        stack = self._stack = Stack(
            loaded, config, self._directory, self._supervisor, self._steps, on_purpose=ON_PURPOSE
        )
        stack.start()
        self._client = self._to_close.enter_context(closing(connect(stack.settings.clickhouse)))
        self._question = IndexQuestion(self._directory.path, stack.urls["index"], stack.settings.index.token)
        advice = AdviceWatch(stack.settings.clickhouse, STORY_SECONDS, _ADVICE_SECONDS)
        self._advice = self._to_close.enter_context(closing(advice))
        # After the connector, which has to see the first batch: engines publish once anybody has subscribed.
        self._probe = self._to_close.enter_context(closing(PublicationProbe(endpoints, self._meter)))

    @property
    def page(self) -> str:
        """Address of the boards, with the range of the whole story; known after `start`."""
        return story_page(self._urls())

    def moments(self, seconds: float | None, every: float) -> Iterator[Moment]:
        """Yield the figures at intervals, for `seconds` or until `stop`; restart what dies meanwhile."""
        ends = float("inf") if seconds is None else time.monotonic() + seconds
        due, early = time.monotonic() + every, True
        while not self._stopped and time.monotonic() < ends:
            self._probe.drain(_QUERY_SECONDS)
            self._supervisor.check()
            for line in self._narrator.news():
                self._note(line)
            try:
                self._measure()
                # The first one comes as soon as there is something to show.
                if time.monotonic() >= due or (early and self._meter.quantile(0.5) is not None):
                    due, early = time.monotonic() + every, False
                    yield self._moment()
            except OperatorError as error:
                # A store that was killed is restarted; the next round asks again.
                self._note(str(error))

    def stop(self) -> None:
        """Make `moments` end soon; may be called by a signal handler."""
        self._stopped = True

    def summary(self, ready_seconds: float) -> dict[str, Any]:
        """Return what the tables and topics hold, and what the index answers, waiting for its start.

        Raises StoreUnavailable and KafkaUnavailable.
        """
        client, settings, question = self._client, self._stack.settings, self._question
        database = settings.clickhouse.database
        with store_unavailable(settings.clickhouse):
            health = read_health(client, database, time.time())
            pools = read_pools(client, database, time.time())
            rows = count_rows(client, database)
            events = count_events(client, database)
        return {
            "ready_seconds": round(ready_seconds, 2),
            "events": events,
            "rows": rows,
            "pools": [asdict(pool) for pool in pools],
            "sources": [
                {"replica": replica, "dp_rank": rank, **asdict(figures)}
                for (replica, rank), figures in sorted(health.items())
            ],
            "freshness_seconds": {"p50": self._meter.quantile(0.5), "p99": self._meter.quantile(0.99)},
            "index": {"question": question.command, "answer": _awaited(question)},
            "topics": asyncio.run(_end_offsets(settings)),
            "restarts": self._supervisor.restarts,
            "urls": self._urls(),
            "data_dir": str(self._directory.path),
        }

    def close(self) -> None:
        """Stop everything, in reverse order."""
        self._to_close.close()

    def _measure(self) -> None:
        store = self._stack.settings.clickhouse
        with store_unavailable(store):
            health = read_health(self._client, store.database, time.time())
        self._meter.queryable({source: figures.last_seq for source, figures in health.items()}, time.time())

    def _moment(self) -> Moment:
        store = self._stack.settings.clickhouse
        with store_unavailable(store):
            pools = read_pools(self._client, store.database, time.time())
        freshness = (self._meter.quantile(0.5), self._meter.quantile(0.99))
        size = shutil.get_terminal_size()
        advice = self._advice.latest
        answer = self._question.answer_line()
        lines = [self._question.command, f"-> {answer}"]
        return Moment(
            screen(pools, freshness, self._urls(), self._notes, size, advice, lines),
            f"{plain(pools, freshness, advice)}; index: {answer}",
        )

    def _urls(self) -> dict[str, str]:
        urls = dict(self._stack.urls)
        database = self._stack.settings.clickhouse.database
        urls["try"] = (
            f"curl '{urls['clickhouse']}/?database={database}' -d 'SELECT * FROM occupancy_10s FINAL'"
        )
        urls["logs"] = str(self._directory.logs)
        return urls

    def _note(self, line: str) -> None:
        if line in self._notes[-1:]:
            return
        self._notes = [*self._notes, line][-_NOTES_SHOWN:]
        self._steps.tell(line)


def _awaited(question: IndexQuestion) -> Mapping[str, Any] | None:
    """Return the answer of an index that may still be starting, None if it takes too long."""
    deadline = time.monotonic() + _INDEX_SECONDS
    while (answer := question.ask()) is None and time.monotonic() < deadline:
        time.sleep(_QUERY_SECONDS)
    return answer


async def _end_offsets(settings: Settings) -> dict[str, int]:
    """Return topic -> records ever appended, over its partitions."""
    topics = [topic for topic in await describe(settings) if topic.partitions]
    ends = {}
    try:
        async with started_consumer(**client_options(settings.kafka)) as consumer:
            for topic in topics:
                partitions = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
                ends[topic.name] = sum((await consumer.end_offsets(partitions)).values())
    except KAFKA_FAILURES:
        return {}
    return ends
