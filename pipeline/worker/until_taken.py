"""Writes again and again until ClickHouse takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pipeline.errors import StoreUnavailable

_RETRY_SECONDS = 5.0


async def until_taken(write: Callable[[], Awaitable[None]]) -> None:
    """Await `write()` until it does not raise StoreUnavailable."""
    while True:
        try:
            await write()
            return
        except StoreUnavailable:
            await asyncio.sleep(_RETRY_SECONDS)
