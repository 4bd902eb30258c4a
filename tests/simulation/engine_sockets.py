"""The connector's sockets without sockets: what engines publish, and what they answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from connectors.frames.bundle import Bundle, Frames
from connectors.receive import subscriber
from connectors.receive.hand_over import HandOver
from connectors.receive.received import Key
from connectors.sources import SourceKey
from schemas.reasons import ReplayOutcome
from tests.simulation.loop import here

if TYPE_CHECKING:
    from tests.simulation.engine import Engine
    from tests.simulation.simulation import Simulation


class Subscriber(subscriber.Subscriber):
    """The product's without a thread and sockets, above its hand-over."""

    def __init__(self, *, hand_over_bytes: int, **options: Any) -> None:
        self._process = here()
        self.hand_over = HandOver(hand_over_bytes, lambda: None)
        self._engines: dict[Key, Engine] = {}

    @property
    def behind(self) -> bool:
        return not self.hand_over.empty

    def start(self) -> None:
        self.hand_over.start()

    def add(self, source: SourceKey, endpoint: str, *options: Any, **more: Any) -> None:
        """Begin to hear an engine, soon."""
        engine = cast("Simulation", self._process.world).engines[endpoint]

        def connected() -> None:
            self._engines[source] = engine
            engine.subscribers[self._process] = lambda frames: self._arrived(source, frames)

        self._process.call_later(self._process.world.latency(), connected)

    def _arrived(self, source: SourceKey, frames: Frames) -> None:
        now = self._process.world
        received_at = cast("Simulation", now).wall() + self._process.clock_ahead
        self.hand_over.put(source, Bundle.of([frames]), len(frames[-1]), received_at)
        self.hand_over._some.set()

    def remove(self, source: SourceKey) -> None:
        engine = self._engines.pop(source, None)
        if engine is not None:
            engine.subscribers.pop(self._process, None)
        self.hand_over.put_last(source, 0.0)
        self.hand_over.wake_loop()

    def connected(self, source: Key) -> bool:
        engine = self._engines.get(source)
        return engine is not None and engine.up

    def pause(self, source: Key) -> None: ...
    def go_on(self, source: Key) -> None: ...

    def stop(self, seconds: float) -> None:
        for engine in self._engines.values():
            engine.subscribers.pop(self._process, None)
        self.hand_over.end(None)

    async def join(self, seconds: float) -> None: ...


class Replayer:
    """As `connectors/replay/client.py`."""

    def __init__(self, *, timeout_seconds: float) -> None:
        self._process = here()
        self._timeout = timeout_seconds

    async def connect(self, endpoint: str) -> Connection | None:
        engine = cast("Simulation", self._process.world).engines[endpoint]
        if await self._process.request(lambda: engine.up):
            return Connection(engine, self._timeout)
        await asyncio.sleep(self._timeout)
        return None

    def close(self) -> None: ...


class Connection:
    """One request to an engine."""

    def __init__(self, engine: Engine, timeout: float) -> None:
        self._engine = engine
        self._timeout = timeout

    async def replay(
        self, first: int, take: Callable[[list[tuple[int, bytes]]], Awaitable[bool]]
    ) -> ReplayOutcome:
        """Return how the answer ended."""
        answer = await here().request(lambda: self._engine.replay(first))
        if answer is None:
            await asyncio.sleep(self._timeout)
            return "timeout"
        batches, ended = answer
        for at in range(0, len(batches), 3):
            if not await take(batches[at : at + 3]):
                return "enough"
            await asyncio.sleep(0)
        if ended:
            return "end"
        await asyncio.sleep(self._timeout)
        return "timeout"

    def close(self) -> None: ...
