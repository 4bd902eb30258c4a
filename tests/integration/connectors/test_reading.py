"""A source that costs more than its share waits, the others lose nothing: real sockets, no Kafka.

`tests/unit/connectors/receive/test_turns.py` has the clock in hand, and asserts how long who waits.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import pytest

from connectors.reading import Reading
from connectors.receive.warming import warm_up
from connectors.sources import Source, SourceKey
from connectors.telemetry.events import Telemetry
from schemas.discovery_settings import Replica
from schemas.events import EventsRecord
from schemas.positions import PositionRecord
from schemas.settings import Connector, Settings
from tests.support.suite.night import first_by_day

ENGINES = """
import sys, time, zmq, msgspec
bad, count, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
context = zmq.Context()
sockets = [context.socket(zmq.XPUB) for _ in range(count)]
for socket in sockets:
    socket.setsockopt(zmq.SNDHWM, 100)
    socket.setsockopt(zmq.XPUB_NODROP, 1)
print(*[socket.bind_to_random_port("tcp://127.0.0.1") for socket in sockets], flush=True)
for socket in sockets:
    socket.recv()
good = b"\\x91" + msgspec.msgpack.encode(["BlockStored", [7], None, [1, 2], 2, None, "GPU", None])
events = b"\\xdd" + bad.to_bytes(4, "big") + b"\\xc0" * bad if bad else good
numbers = [0] * count
while True:
    for i, socket in enumerate(sockets):
        payload = b"\\x93" + msgspec.msgpack.encode(time.time()) + events + b"\\x00"
        try:
            socket.send_multipart([b"", numbers[i].to_bytes(8, "big"), payload], zmq.NOBLOCK)
            numbers[i] += 1
        except zmq.Again:
            pass
    time.sleep(pause)
"""
"""Engines that publish without end: batches of so many bad events, or of a good one, and a pause."""
BATCHES = 100
"""Of each honest engine, two seconds of them at least."""


class Sink:
    """What the publisher would get: the numbers of an engine's batches."""

    full = False

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = {}

    def add(self, record: EventsRecord) -> None:
        batches = msgspec.msgpack.decode(msgspec.msgpack.encode(record.batches))
        self.numbers.setdefault(record.replica, []).extend(
            batch[0] for batch in batches if batch[0] is not None
        )

    async def room(self) -> None:
        pass


class NoPositions:
    """Nothing is known of any source."""

    async def resume(self, sources: Sequence[Source]) -> dict[SourceKey, PositionRecord]:
        return {source.key: PositionRecord(*source.key, 0, -1) for source in sources}

    def forget(self, source: SourceKey) -> None: ...


class Engines:
    """A process of engines, each a replica."""

    def __init__(self, name: str, *, count: int, bad_events: int = 0, pause: float = 0.0) -> None:
        arguments = [sys.executable, "-c", ENGINES, str(bad_events), str(count), str(pause)]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        ports = self.process.stdout.readline().split()
        self.replicas = [
            Replica(id=f"{name}-{number}", model="m", endpoint=f"tcp://127.0.0.1:{port}")
            for number, port in enumerate(ports)
        ]

    def close(self) -> None:
        self.process.kill()
        self.process.wait(60)


async def read(honest: Engines, hostile: Engines, enough: Callable[[Reading], bool]) -> tuple[Sink, Reading]:
    """Read the engines until there are BATCHES of every honest one, and `enough` otherwise."""
    sink = Sink()
    settings = Settings(
        connector=Connector(linger_seconds=0.0, drain_seconds=0.5),
        replicas=tuple(replica for one in (honest, hostile) for replica in one.replicas),
    )
    reading = Reading(settings, None, cast(Any, sink), cast(Any, NoPositions()), Telemetry())
    reading.start()
    await reading.begin()
    deadline = time.monotonic() + 240
    while not enough(reading) or any(
        len(sink.numbers.get(replica.id, ())) < BATCHES for replica in honest.replicas
    ):
        assert time.monotonic() < deadline, {name: len(numbers) for name, numbers in sink.numbers.items()}
        for task in reading.tasks:
            assert not task.done(), task
        await asyncio.sleep(0.05)
    await reading.stop(time.monotonic() + 0.5)
    await reading.subscriber.join(60.0)
    return sink, reading


@pytest.mark.parametrize("bad_events", first_by_day([1_000, 8_000]))
def test_costly_engines_wait_by_themselves(bad_events: int) -> None:
    """Two of them send far more than there is time for."""
    warm_up()
    honest = Engines("honest", count=3, pause=0.02)
    hostile = Engines("hostile", count=2, bad_events=bad_events)

    def enough(reading: Reading) -> bool:
        # A thousand bad events are dealt with as fast as they come.
        return bad_events == 1_000 or all(
            stream.counts.pauses > 0
            for key, stream in reading.streams.items()
            if key[0] in {replica.id for replica in hostile.replicas}
        )

    try:
        sink, reading = asyncio.run(read(honest, hostile, enough))
    finally:
        honest.close()
        hostile.close()
    counts = {key[0]: stream.counts for key, stream in reading.streams.items()}
    for replica in hostile.replicas:
        assert counts[replica.id].batches > 0
        assert counts[replica.id].undecodable["missing_type"] == counts[replica.id].batches * bad_events
    for replica in honest.replicas:
        numbers = sink.numbers[replica.id]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert counts[replica.id].lost_batches == 0
        assert counts[replica.id].duplicates == 0
