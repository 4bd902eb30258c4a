"""Index and worker killed while choices go through: each request is one row, as a recount judges it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka import TopicPartition

from connectors.kafka.consumer import started_consumer
from connectors.kafka.topics import topic_name
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.verify.replica.source import SourceRecount
from schemas.events import EventsRecord
from schemas.settings import Index, Kafka, Settings, Worker
from tests.support.choices_topic import PARTITIONS, choices_in
from tests.support.holders import held_by_each
from tests.support.index_service import IndexProcess, index_process
from tests.support.inputs.source_walks import Walk

pytestmark = pytest.mark.night

Row = tuple[Any, ...]
REQUESTS = 600
POSTED_AT_ONCE = 5
WAIT_SECONDS = 60.0


def fleet() -> tuple[list[Walk], list[EventsRecord]]:
    """Return walks that share their blocks, and what they published."""
    walks = [Walk(30 + n, hybrid=False, replica=f"r{n}", began=time.time() - 3600) for n in range(4)]
    for walk in walks[1:]:
        walk.pool, walk.chains = walks[0].pool, walks[0].chains
    return walks, [record for walk in walks for record in walk.records(30)]


def chosen(walks: Sequence[Walk], rng: random.Random) -> list[dict[str, Any]]:
    prompts = [rng.sample(walks[0].pool, rng.randint(1, 6)) for _ in range(100)]
    prompts += [[*chain] for pair in walks[0].chains for chain in pair if chain]
    began = time.time() - 1800
    return [
        {
            "request_id": f"req-{number}",
            "block_hashes": rng.choice(prompts),
            "instance_id": rng.choice([walk.replica for walk in walks]),
            "time": began + number,
        }
        for number in range(REQUESTS)
    ]


def recounted(records: Sequence[EventsRecord], choices: Sequence[dict[str, Any]]) -> list[Row]:
    """Return request, replica, window, longest match and the chosen one's, by looking into every cache."""
    caches: dict[str, SourceRecount] = {}
    for offset, record in enumerate(records):
        caches.setdefault(record.replica, SourceRecount(record.replica, 0, Worker())).apply(offset, record)
    sources = [one for one in caches.values() if one.life.model == "m"]
    rows = []
    for choice in choices:
        held = {name: one.disk for (name, _), one in held_by_each(sources, choice["block_hashes"]).items()}
        best, replica = max(held.values(), default=0), choice["instance_id"]
        window = int(choice["time"]) // 10 * 10
        rows.append((choice["request_id"], replica, window, best, held.get(replica, 0)))
    return sorted(rows)


async def committed(kafka: Kafka) -> int:
    """Return how many records of choices the commits of the group cover."""
    topic = topic_name(kafka, "choices")
    async with started_consumer(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=f"{kafka.group}.choices",
        enable_auto_commit=False,
    ) as consumer:
        offsets = [await consumer.committed(TopicPartition(topic, number)) for number in range(PARTITIONS)]
    return sum(offset or 0 for offset in offsets)


class Router:
    """Posts until it is told that the choices are accepted, as one does that wants none lost."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self.settings = msgspec.structs.replace(settings, index=Index(port=0, choices=True))
        self.directory = directory
        self.started = 0
        self.restart()

    def restart(self) -> None:
        self.index: IndexProcess = index_process(self.settings, self.directory, f"index-{self.started}")
        self.started += 1

    def post(self, choices: Sequence[dict[str, Any]]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            status, answer = self.index.ask("choices", {"model_name": "m", "choices": [*choices]})
            if status == 200:
                assert answer["accepted"] == len(choices)
                return
            assert status == 503, answer
            assert time.monotonic() < deadline, (answer, self.index.said()[-2000:])
            time.sleep(0.05)


@pytest.fixture
def router(
    new_laboratory: Callable[..., Any], broker: EmbeddedBroker, store: EmbeddedStore, tmp_path: Path
) -> Any:
    laboratory = new_laboratory(broker, store)
    laboratory.router = Router(laboratory.settings, tmp_path)
    yield laboratory
    laboratory.router.index.close()


def test_each_request_is_one_row_whatever_is_killed(router: Any) -> None:
    laboratory, rng = router, random.Random(5)
    walks, records = fleet()
    laboratory.produce(records)
    choices = chosen(walks, rng)
    expected = recounted(records, choices)
    assert len({(best, mine) for *_, best, mine in expected}) > 5

    def rows() -> list[Row]:
        found: list[Row] = laboratory.query(
            "SELECT request_id, replica, toUnixTimestamp(time) DIV 10 * 10, best_tokens, chosen_tokens "
            f"FROM {laboratory.settings.clickhouse.database}.choices FINAL ORDER BY ALL"
        )
        return found

    def wait_rows(number: int) -> list[Row]:
        deadline = time.monotonic() + WAIT_SECONDS
        while len(found := rows()) < number:
            assert time.monotonic() < deadline, (len(found), laboratory.workers[-1].said()[-2000:])
            time.sleep(0.1)
        return found

    wire = laboratory.router
    worker = laboratory.worker(agents="fleet")
    before: list[Row] = []
    kills = {100: "index", 200: "worker", 300: "both", 400: "worker", 500: "index"}
    for first in range(0, REQUESTS, POSTED_AT_ONCE):
        killed = kills.get(first, "")
        if killed:
            # The last of them may be on their way still.
            before = wait_rows(first // 2)
        if killed in ("index", "both"):
            wire.index.kill()
            wire.restart()
            # Nobody heard of the answer to these.
            wire.post(choices[first - 20 : first])
        if killed in ("worker", "both"):
            worker.kill()
            worker = laboratory.worker(agents="fleet")
        assert {*before} <= {*expected}
        wire.post(choices[first : first + POSTED_AT_ONCE])
    assert wait_rows(REQUESTS) == expected
    deadline = time.monotonic() + WAIT_SECONDS
    while (verified := laboratory.findings(patience=0.0)).compared["choices"] < REQUESTS or verified.late:
        assert time.monotonic() < deadline, verified
    assert verified.differing["choices"] == 0, verified.kept[:3]
    worker.kill()
    # A worker that knows nothing reads everything again, and writes the same rows.
    settings = msgspec.structs.replace(
        laboratory.settings, kafka=msgspec.structs.replace(laboratory.settings.kafka, group="another")
    )
    laboratory.settings = settings
    log = asyncio.run(choices_in(settings.kafka))
    assert len(log) >= REQUESTS + 3 * 20
    assert {one.request_id for one in log} == {row[0] for row in expected}
    again = laboratory.worker(agents="fleet")
    deadline = time.monotonic() + WAIT_SECONDS
    while asyncio.run(committed(settings.kafka)) < len(log):
        assert time.monotonic() < deadline, again.said()[-2000:]
        time.sleep(0.1)
    assert again.end() == 0
    assert rows() == expected

    sums = laboratory.query(
        "SELECT sum(choices), sum(judged_choices), sum(worse_choices), sum(best_tokens), sum(lost_tokens), "
        f"sum(stale_choices) FROM {settings.clickhouse.database}.routing_10s("
        "from = now() - INTERVAL 2 HOUR, to = now())"
    )
    lost = [best - mine for *_, best, mine in expected]
    assert sums == [(REQUESTS, REQUESTS, sum(map(bool, lost)), sum(row[3] for row in expected), sum(lost), 0)]
