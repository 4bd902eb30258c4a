"""Waits for what others have to start, create or permit: reported at once, and then once a minute."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from connectors.process.errors import OperatorError

TELL_SECONDS = 60.0

Result = TypeVar("Result")


class Waiting:
    """Tries a step of the start until it succeeds, as long as its errors may heal."""

    def __init__(
        self,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`tell` is called with the line of a new error, and once a minute with that of one that stays."""
        self.cause: str | None = None
        """What it waits for now, for the readiness page."""
        self._tell = tell
        self._clock = clock
        self._sleep = sleep
        self._told: tuple[type[OperatorError], float] | None = None

    async def until(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        """Return what `attempt` returns once it succeeds; raise what waiting cannot heal."""
        while True:
            try:
                result = await attempt()
            except OperatorError as error:
                if not error.heals:
                    raise
                self.cause = str(error)
                self._tell_again(error)
                pause = error.again_seconds
            else:
                self.cause = self._told = None
                return result
            await self._sleep(pause)

    def _tell_again(self, error: OperatorError) -> None:
        # By kind, as the text may differ from try to try: refused now, reset a moment later.
        kind, now = type(error), self._clock()
        if self._told is None or self._told[0] is not kind or now - self._told[1] >= TELL_SECONDS:
            self._told = (kind, now)
            self._tell(str(error))
