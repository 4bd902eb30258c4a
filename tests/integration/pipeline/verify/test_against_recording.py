"""Recordings against tables: those of the worker that read the same engine are equal, others are not."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
from clickhouse_connect.driver.client import Client

from pipeline.clickhouse.writer import Tables
from pipeline.recordings.events import RecordedEvents
from pipeline.recordings.format import Frame, RecordedSource, RecordingWriter
from pipeline.residency.partition import PartitionState
from pipeline.verify.against_recording import check_recorded
from pipeline.verify.findings import Findings
from pipeline.verify.store import StoredTables
from schemas.settings import ClickHouse, Settings, Worker


def recorded(path: Path) -> Path:
    """A minute of an engine: each batch stores a block, every third removes one."""
    began = time.time() - 600
    with RecordingWriter(path, (RecordedSource(replica="r", model="m"),)) as writer:
        for seq in range(120):
            at = began + seq / 2
            events: list[Any] = [["BlockStored", [seq + 1], None, [1, 2], 2, None, "GPU", None]]
            if seq and seq % 3 == 0:
                events.append(["BlockRemoved", [seq], "GPU"])
            payload = msgspec.msgpack.encode([at, events, 0])
            writer.write(Frame(0, at + 0.01, (b"", seq.to_bytes(8, "big"), payload)))
    return path


def checked(recording: Path, store: ClickHouse) -> Findings:
    findings = Findings()
    tables = StoredTables(store)
    check_recorded(RecordedEvents(recording), tables, Worker(), findings)
    tables.close()
    return findings


def test_a_recording_tells_what_the_tables_should_be(
    store_client: Client, own: Settings, tmp_path: Path
) -> None:
    recording = recorded(tmp_path / "engine.kvlens")
    settings = own.clickhouse
    state = PartitionState(0, Worker(), shards=1)
    for offset, record in enumerate(RecordedEvents(recording)):
        state.apply(offset, record)
    tables = Tables(settings)
    asyncio.run(tables.insert(state.cut(0.0).rows))
    tables.close()
    findings = checked(recording, settings)
    assert findings.equal, findings.kept[:3]
    assert findings.compared["occupancy_10s"] == findings.compared["flow_10s"] >= 5

    place = f"{settings.database}.flow_10s"
    first = f"FROM {place} FINAL ORDER BY ALL LIMIT 1"
    store_client.command(f"INSERT INTO {place} SELECT * REPLACE (stored_blocks + 1 AS stored_blocks) {first}")
    [difference] = checked(recording, settings).kept
    assert (difference.table, difference.kind) == ("flow_10s", "differs")
    assert difference.found["stored_blocks"] == difference.expected["stored_blocks"] + 1
