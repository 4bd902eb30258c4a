"""What reading does where the clock or a task of it misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from connectors import reading as reading_module
from connectors.order.stream import SourceStream
from connectors.reading import Reading
from connectors.receive.pump import Pump
from connectors.sources import Source
from connectors.telemetry.events import Telemetry
from schemas.settings import Connector, Settings

SOURCE = Source("r", 0, "m", "t", "m/s/t", "tcp://127.0.0.1:1")
SILENT = 5.0


def reading_of_nothing() -> Reading:
    sink = cast(Any, SimpleNamespace(add=print, room=None, full=False))
    settings = Settings(connector=Connector(silent_seconds=SILENT))
    return Reading(settings, None, sink, cast(Any, None), Telemetry())


async def test_a_stop_waits_until_nothing_is_dealt_with_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(_: Pump) -> None:
        # As `asyncio.wait_for` before Python 3.12 may.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(60)

    monkeypatch.setattr(Pump, "run", run)
    monkeypatch.setattr(reading_module, "warm_up", lambda: None)
    reading = reading_of_nothing()
    reading.start()
    tasks = reading.tasks
    await asyncio.sleep(0)
    await reading.stop(time.monotonic())
    await reading.subscriber.join(60.0)
    assert all(task.done() for task in tasks)


async def test_an_engine_is_silent_though_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [4_600.0]
    reading = reading_of_nothing()
    reading.subscriber.start()
    reading.subscriber.stop(0.0)
    await reading.subscriber.join(60.0)
    stream = SourceStream(SOURCE, Connector(), lambda: now[0])
    reading.streams[SOURCE.key] = stream
    monkeypatch.setattr(time, "time", lambda: now[0])
    stream.feed((b"", bytes(8), b""), now[0])
    now[0] = 1_000.0
    stream.look(now[0], connected=False)
    assert not reading.silent(SOURCE.key)
    now[0] += SILENT + 1.0
    assert reading.silent(SOURCE.key)
