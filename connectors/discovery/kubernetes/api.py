"""The Kubernetes API over HTTP: pods listed in pages, and watched line by line, all within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence

import aiohttp

from connectors.discovery.kubernetes.credentials import headers_of, server_of, tls_of
from connectors.discovery.kubernetes.documents import (
    ApiFailure,
    DocumentMalformed,
    PodDocument,
    WatchEvent,
    decoded_event,
    decoded_failure,
    decoded_page,
)
from connectors.discovery.kubernetes.lines import Lines, LineTooLong
from connectors.discovery.kubernetes.presets import selector_of
from connectors.process.pages import PageTooLarge, body_within
from schemas.discovery_settings import Kubernetes

PAGE_PODS = 250
MAX_PAGES = 400
MAX_PAGE_BYTES = 64 << 20
MAX_LINE_BYTES = 8 << 20
"""An object in etcd has at most 1.5 MiB."""
MAX_ERROR_BYTES = 64 << 10
CONNECT_SECONDS = 5.0
REQUEST_SECONDS = 30.0
WATCH_SECONDS = 300
"""The server ends a watch after so long."""
_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A connection to a server that has vanished ends within half a minute, where the system can do that."""
_EXPIRED = 410
_READABLE = 200


@contextlib.asynccontextmanager
async def connected(entry: Kubernetes) -> AsyncIterator[Api]:
    """Yield the API of an entry's server, with the certificates as they are now. Raises ApiFailure."""
    server = server_of(entry)
    connector = aiohttp.TCPConnector(
        ssl=tls_of(entry) if server.startswith("https") else True, socket_factory=_kept_alive
    )
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield Api(entry, server, session)


class Api:
    """Lists and watches the pods of one entry of the settings."""

    def __init__(self, entry: Kubernetes, server: str, session: aiohttp.ClientSession) -> None:
        self._entry = entry
        self._server = server
        self._session = session

    async def pods(self, namespace: str) -> tuple[list[PodDocument], str]:
        """Return the pods of a namespace ("": of all) and the version to watch from. Raises ApiFailure."""
        documents: list[PodDocument] = []
        going_on = ""
        for _ in range(MAX_PAGES):
            query = {"limit": str(PAGE_PODS), "continue": going_on} if going_on else {"limit": str(PAGE_PODS)}
            timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS)
            async with self._answer(namespace, query, timeout) as response:
                page = decoded_page(await body_within(MAX_PAGE_BYTES, response))
            documents += page.items or ()
            going_on = page.metadata.continue_
            if not going_on:
                return documents, page.metadata.resource_version
        raise ApiFailure("too_large", f"{MAX_PAGES * PAGE_PODS} pods and more match the selector")

    async def events(self, namespace: str, version: str) -> AsyncIterator[Sequence[WatchEvent]]:
        """Yield what happens to the pods from a version on, until the server ends it. Raises ApiFailure."""
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=WATCH_SECONDS + REQUEST_SECONDS
        )
        lines = Lines(MAX_LINE_BYTES)
        async with self._answer(namespace, query, timeout) as response:
            async for piece in response.content.iter_any():
                yield [_passed(decoded_event(line)) for line in lines.fed(piece)]

    @contextlib.asynccontextmanager
    async def _answer(
        self, namespace: str, query: dict[str, str], timeout: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        headers = {"Accept": "application/json", **headers_of(self._entry)}
        query = {"labelSelector": selector_of(self._entry), **query}
        try:
            async with self._session.get(
                self._server + path, params=query, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                if response.status != _READABLE:
                    _, message = decoded_failure(await body_within(MAX_ERROR_BYTES, response))
                    raise _refusal(response.status, message)
                yield response
        except PageTooLarge as error:
            raise ApiFailure("too_large", f"an answer of {error}") from error
        except asyncio.TimeoutError as error:
            raise ApiFailure("timeout", f"{self._server} did not answer in time") from error
        except DocumentMalformed as error:
            raise ApiFailure("malformed", f"{self._server}: {error}") from error
        except LineTooLong as error:
            raise ApiFailure("too_large", f"{self._server}: {error}") from error
        except aiohttp.ClientConnectorError as error:
            why = error.os_error.strerror or str(error.os_error) or type(error.os_error).__name__
            raise ApiFailure("unreachable", f"{self._server}: {why}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ApiFailure("unreachable", f"{self._server}: {type(error).__name__}") from error


def _passed(event: WatchEvent) -> WatchEvent:
    """Return an event. Raises ApiFailure for an error, which comes with status 200, too."""
    if event.type == "ERROR":
        code, message = decoded_failure(event.object)
        raise _refusal(code, message)
    return event


def _refusal(status: int, message: str) -> ApiFailure:
    text = "".join(each if each.isprintable() else " " for each in message[:300]) or "no reason given"
    if status == _EXPIRED:
        return ApiFailure("expired", text)
    if status == 401:
        return ApiFailure("unauthorised", "the API server does not know the token")
    if status == 403:
        return ApiFailure("forbidden", f"{text}; let the ServiceAccount list and watch pods")
    return ApiFailure("http_status", f"HTTP status {status}: {text}")


def _kept_alive(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
