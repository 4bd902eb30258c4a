"""What the doctor finds, for everybody who asks: it looks at most once in a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

FRESH_SECONDS = 20.0
"""A look asks broker and store for seconds; its findings serve everybody for so long."""


class Findings:
    """`look` gives verdict, findings and the time of the look, as `kvlens doctor --json` has them."""

    def __init__(self, look: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        self._look = look
        self._begun = 0.0
        self._task: asyncio.Task[dict[str, Any]] | None = None

    async def newest(self) -> dict[str, Any]:
        """Return what was found last; look again if that is too old."""
        now = time.monotonic()
        failed = self._task is not None and self._task.done() and self._task.exception() is not None
        if self._task is None or failed or now - self._begun > FRESH_SECONDS:
            self._begun = now
            self._task = asyncio.ensure_future(self._look())
        return await asyncio.shield(self._task)
