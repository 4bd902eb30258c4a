"""A damaged checkpoint is refused, and `kvlens state rebuild` leads back to the tables that the log gives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from connectors.kafka.topics import partition_of, topic_name
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.checkpoints import BASE, slot_key
from tests.support.inputs.generated_logs import shared_log
from tests.support.processes import KVLENS, Started, as_toml, kvlens, started

pytestmark = pytest.mark.night

Make = Callable[..., Any]
PARTITIONS = 8
ASIDE = ("occupancy_10s", "flow_10s", "stream_health_10s", "sources")


async def damage(laboratory: Any, replica: str) -> None:
    """Overwrite the head of a source with what nobody can read."""
    kafka = laboratory.settings.kafka
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        await producer.send_and_wait(
            topic_name(kafka, "checkpoints_replica"),
            b"\xc1",
            key=slot_key(replica, 0, BASE),
            partition=partition_of(replica, PARTITIONS),
        )


def filled(laboratory: Any) -> list[tuple[Any, ...]]:
    database = laboratory.settings.clickhouse.database
    return laboratory.query(
        f"SELECT window, replica, sum(filled_blocks) FROM {database}.fills_10s FINAL "
        "GROUP BY window, replica ORDER BY ALL"
    )


def when_nobody_is_left(command: Sequence[str], output: Path) -> Started:
    """Run the command again while the worker that ended in the midst of things still counts as a member."""
    deadline = time.monotonic() + 60
    while True:
        running = started(command, output, cwd=output.parent)
        while running.alive and "start the workers" not in running.said():
            time.sleep(0.1)
        if running.alive or "try again" not in running.said():
            return running
        assert time.monotonic() < deadline


def test_a_damaged_checkpoint_is_refused_and_computed_again_from_the_log(
    broker: EmbeddedBroker, store: EmbeddedStore, new_laboratory: Make, tmp_path: Path
) -> None:
    laboratory = new_laboratory(broker, store)
    log = shared_log(7, replicas=4, rounds=20, began=time.time() // 10 * 10 - 600)
    laboratory.produce(log)
    worker = laboratory.worker()
    laboratory.wait_applied(len(log))
    laboratory.wait_followed()
    settings = tmp_path / "kvlens.toml"
    settings.write_text(as_toml(laboratory.settings))
    command = ("state", "rebuild", "--yes", "--config", str(settings))
    code, _, said = kvlens(*command, cwd=tmp_path)
    assert code == 1
    assert "has 1 members: stop all workers and try again" in said
    assert worker.end() == 0
    before = {table: laboratory.table(table) for table in ASIDE}
    fills = filled(laboratory)
    assert fills

    asyncio.run(damage(laboratory, log[0].replica))
    refusing = laboratory.worker()
    assert refusing.process.wait(90) == 69
    assert "is damaged (DecodeError: MessagePack data is malformed" in refusing.said()
    assert "run `kvlens state rebuild` to compute it again from the log" in refusing.said()

    output = tmp_path / "rebuild.log"
    rebuilding = when_nobody_is_left([*KVLENS, *command], output)
    rebuilding.wait_said("start the workers now")
    assert "the log has every event since it was made: all figures are computed again" in rebuilding.said()
    worker = laboratory.worker()
    assert rebuilding.process.wait(90) == 0
    said = rebuilding.said()
    assert f"of {len(log)} event records" in said or f"all {len(log)} event records" in said
    assert worker.end() == 0
    assert {table: laboratory.table(table) for table in ASIDE} == before
    assert filled(laboratory) == fills
    # The residency topic begins anew, and so does the fleet agent: all of its tables are recounted.
    findings = laboratory.findings()
    assert findings.equal, findings.kept[:5]
    assert not findings.compared_from
    for table in ("fills_10s", "redundancy_10s", "capacity_curve_10s", "hash_groups"):
        assert findings.compared[table] == len(laboratory.table(table)), findings.left_out
    assert findings.compared["hot_prefixes_10s"]
    assert findings.compared["residency"]
