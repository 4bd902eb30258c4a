"""Requests that are not sent any more."""

from __future__ import annotations

import asyncio
import time

import msgspec

from connectors.order.stream import SourceStream
from connectors.replay.requests import ReplayRequests
from connectors.sources import Source
from schemas.events import EventsRecord, Opened
from schemas.settings import Connector

SOURCE = Source("r", 0, "m", "t", "d", "tcp://127.0.0.1:1", replay_endpoint="tcp://127.0.0.1:2")


def message(seq: int) -> tuple[bytes, bytes, bytes]:
    stored = ["BlockStored", [seq], None, [1, 2], 2, None, "GPU"]
    return b"", seq.to_bytes(8, "big"), msgspec.msgpack.encode([1_700_000_000.0 + seq, [stored], 0])


async def test_what_misses_something_after_the_stop_loses_nothing_and_waits_for_a_later_start() -> None:
    stream = SourceStream(SOURCE, Connector(), time.time)
    records: list[EventsRecord] = []
    requests = ReplayRequests(
        {SOURCE.key: stream}, timeout_seconds=60, publish=records.extend, room=lambda: asyncio.sleep(0)
    )
    stream.asked()
    records += stream.replay_ended("end", time.time())
    requests.start()
    await requests.stop()
    # What the sockets still hold is read after the stop.
    records += stream.feed_all([message(0), message(5)], time.time())
    requests.send_wanted(stream)
    await asyncio.sleep(0.1)
    records += stream.flush()
    assert [batch.seq for record in records for batch in record.batches] == [None, 0]
    assert records[0].batches[0].events == [Opened(0, True, SOURCE.endpoint)]
    assert stream.ask is not None
