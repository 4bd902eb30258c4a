"""Ends a process and its tasks: those that run for ever, and those that a stop interrupts."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterable
from typing import Any

AGAIN_SECONDS = 0.2
SOON_SECONDS = 2.5
"""Longest stop after Ctrl-C, as somebody waits; the interpreter takes a moment more to end."""


class Stop(asyncio.Event):
    """Set when the process is to end; `within` returns how long that may take."""

    def __init__(self) -> None:
        super().__init__()
        self._soon = False

    def at_signals(self) -> None:
        """Have SIGTERM call `set`, and SIGINT `set_soon`, from now on. To be called in the event loop."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.set)
        loop.add_signal_handler(signal.SIGINT, self.set_soon)

    def set_soon(self) -> None:
        """Set it, and let no stop take longer than SOON_SECONDS."""
        self._soon = True
        self.set()

    def within(self, seconds: float) -> float:
        """Return how long a stop may take if the settings allow `seconds`."""
        return min(seconds, SOON_SECONDS) if self._soon else seconds


async def done_before(stop: asyncio.Event, task: asyncio.Task[Any]) -> bool:
    """Wait for a task, raise what it raised, and return True; at `stop` cancel it and return False."""
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([stopped, task], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        return False
    finally:
        await ended(stopped, task)


async def ended(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks and return when they are over, whatever their outcome.

    Before Python 3.12 `asyncio.wait_for` loses a cancellation that comes together with what it waits for
    (bpo-37658), here and in Kafka's client. So a task that goes on is cancelled again.
    """
    going: Iterable[asyncio.Task[Any]] = {task for task in tasks if task is not None}
    while going:
        for task in going:
            task.cancel()
        _, going = await asyncio.wait(going, timeout=AGAIN_SECONDS)
    await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)


async def ended_within(seconds: float, stopping: Coroutine[Any, Any, Any]) -> None:
    """Wait for `stopping`, and after so many seconds cancel it until it is over. Raises what it raises."""
    task = asyncio.ensure_future(stopping)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            await ended(task)
    if not task.cancelled():
        task.result()
