"""Get a metrics page over HTTP, with a bound to its time and to its bytes."""

from __future__ import annotations

import asyncio

import aiohttp

from connectors.process.pages import PageTooLarge, body_within
from connectors.scrape.counters import PageUnreadable

MAX_PAGE_BYTES = 8 << 20


async def fetched(session: aiohttp.ClientSession, url: str) -> str:
    """Return the page at `url`. Raises PageUnreadable."""
    try:
        async with session.get(url) as response:
            if response.status >= 400:
                raise PageUnreadable("http_status", f"HTTP status {response.status}")
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise PageUnreadable("not_prometheus", "compressed, which nobody asked for")
            return (await body_within(MAX_PAGE_BYTES, response)).decode(errors="replace")
    except PageTooLarge as error:
        raise PageUnreadable("too_large", str(error)) from error
    except asyncio.TimeoutError as error:
        raise PageUnreadable("timeout", "no whole page in time") from error
    except aiohttp.ClientConnectorError as error:
        message = error.os_error.strerror or type(error.os_error).__name__
        raise PageUnreadable("unreachable", message) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: of some addresses that are none
        # Their texts repeat the address, with what is secret in it.
        raise PageUnreadable("unreachable", type(error).__name__) from error
