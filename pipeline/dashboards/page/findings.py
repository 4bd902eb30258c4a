"""What the doctor finds, shared by all viewers: it looks at most once in FRESH_SECONDS.

A store that is busy, or does not answer, hides earlier findings: those stay on the page, with their time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

HIDING = {"store-busy", "store-unavailable"}
"""Findings that may hide others."""
SHOWN_ON_SECONDS = 600.0
"""How long hidden findings stay on the page."""
FRESH_SECONDS = 20.0
"""A look keeps broker and store busy for seconds; its findings serve everybody for this long."""


class Findings:
    """`look` gives verdict, findings and the time of the look, as `kvlens doctor --json` has them."""

    def __init__(self, look: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        self._look = look
        self._whole: dict[str, Any] = {"at": 0.0, "findings": []}
        """The last look at which the store answered everything."""
        self._begun = 0.0
        self._task: asyncio.Task[dict[str, Any]] | None = None

    async def newest(self) -> dict[str, Any]:
        """Return what was found last; look again if that is too old."""
        now = time.monotonic()
        failed = self._task is not None and self._task.done() and self._task.exception() is not None
        if self._task is None or failed or now - self._begun > FRESH_SECONDS:
            self._begun = now
            self._task = asyncio.ensure_future(self._looked())
        return await asyncio.shield(self._task)

    async def _looked(self) -> dict[str, Any]:
        found = await self._look()
        codes = {finding["code"] for finding in found["findings"]}
        if not codes & HIDING:
            self._whole = found
            return found
        if found["at"] - self._whole["at"] > SHOWN_ON_SECONDS:
            return found
        earlier = [
            {**finding, "as_of": self._whole["at"]}
            for finding in self._whole["findings"]
            if finding["code"] not in codes
        ]
        return {**found, "findings": [*found["findings"], *earlier]}
