"""Fetches pages of other servers: no cookies, no decompression, no more bytes than the caller allows."""

from __future__ import annotations

import aiohttp

from connectors.process.errors import DataError


class PageTooLarge(DataError):
    """A page has more bytes than allowed."""

    limit: int
    line = "more than {limit} bytes"


def page_session(timeout_seconds: float, *, reuse: bool = True) -> aiohttp.ClientSession:
    """Return a session that keeps no cookies and decompresses nothing: few bytes may expand to very many.

    `reuse`: keep its connections, where the same server is asked again and again.
    """
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=timeout_seconds),
        connector=aiohttp.TCPConnector(limit=0, force_close=not reuse),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Accept-Encoding": "identity"},
        auto_decompress=False,
    )


async def body_within(limit: int, response: aiohttp.ClientResponse) -> bytes:
    """Return the body. Raises PageTooLarge as soon as it exceeds `limit`."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > limit:
            raise PageTooLarge(limit)
    return bytes(body)
