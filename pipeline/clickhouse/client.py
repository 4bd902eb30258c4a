"""ClickHouse clients as the pipeline uses them, and the translation of their errors."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import cast
from urllib.parse import urlsplit

import clickhouse_connect
from clickhouse_connect.driver import options
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError
from clickhouse_connect.driver.httpclient import HttpClient

from connectors.process.addresses import without_secrets
from connectors.process.leaving import awaited_aside
from pipeline.clickhouse.layout import SETTINGS
from pipeline.clickhouse.login import RenewedHeaders, password_of, tls_arguments
from pipeline.clickhouse.remedies import NO_LOGIN, remedy
from pipeline.errors import StoreBusy, StoreLimit, StoreUnavailable
from pipeline.settings.validation import store_address_problem
from schemas.settings import ClickHouse

_CONNECT_SECONDS = 5
_NO_CONNECTION = re.compile(r"ConnectionPool.*\[Errno -?\d+\] ([^\"\')]+)")
_BROKEN_OFF = re.compile(
    r"(?i)certificate.required|EOF occurred in violation|Connection reset|RemoteDisconnected"
)
"""How a server breaks off that wants a certificate, and got none or an unknown one."""
_NO_HANDSHAKE = re.compile(r"ConnectionPool.*\[SSL: (\w+)\] ([^(]+) \(_ssl")
_AROUND = re.compile(
    r"Received ClickHouse exception, code: \d+, server response: (.+?)( \(for url [^()]*\))?"
)
"""What clickhouse-connect writes around the server's own message."""
_LACKS: dict[int, StoreLimit] = {
    159: "time",  # it ran too long
    160: "time",  # it would run too long
    241: "memory",  # a limit of the statement, the user or the server
    173: "memory",  # the system gives no more
    202: "turns",  # too many statements at once
    439: "turns",  # no free thread
    203: "turns",  # no free connection to another server
}
"""Error codes of a server that works, but has too much to do."""
_BUSY_ADVICE: dict[StoreLimit, str] = {
    "time": "ask for a shorter range, or raise page.panel_seconds or the user's max_execution_time",
    "memory": "ask for a shorter range, or raise the user's or the server's limit of memory",
    "turns": "ask again later, or raise max_concurrent_queries",
    "answer": "check that it runs, and how much it has to do",
}
_WHILE = re.compile(r":? [Ww]hile executing .*")
"""Where in the statement it failed: of no use in a line for an operator."""
_ALLOWED = re.compile(r"(?:maximum:|within) ([\d.]+) (ms|s)")
_NO_ANSWER = re.compile(r"Read timed out. \(read timeout=([\d.]+)\)")


def connect(store: ClickHouse) -> Client:
    """Return a client that several threads may use. Raises StoreUnavailable, CertificateUnreadable."""
    without_pandas()
    if not store.url:
        advice = "name the server whose tables it needs in clickhouse.url"
        raise StoreUnavailable(
            "an empty address", "these settings are without it", advice=advice, heals=False
        )
    if (problem := store_address_problem(store.url)) is not None:
        raise StoreUnavailable(store.url, problem, advice="correct clickhouse.url", heals=False)
    password = password_of(store)
    address = urlsplit(store.url)
    with store_unavailable(store):
        try:
            client = awaited_aside(
                lambda: clickhouse_connect.get_client(
                    # From a whole URL it would take the path for a database, and the query for arguments.
                    interface=address.scheme,
                    host=address.hostname,
                    port=address.port or 0,  # the default: 8123, with TLS 8443
                    proxy_path=address.path.strip("/"),
                    username=store.username,
                    password=password,
                    settings=SETTINGS if store.cluster else None,
                    **tls_arguments(store),
                    # A session would serialise the threads.
                    autogenerate_session_id=False,
                    connect_timeout=_CONNECT_SECONDS,
                    send_receive_timeout=max(1, int(store.timeout_seconds)),
                    # Retrying is decided where the call is made.
                    query_retries=0,
                )
            )
        except ValueError as error:  # not a valid host
            advice = "correct clickhouse.url"
            raise StoreUnavailable(store.url, first_line(error), advice=advice, heals=False) from error
    if store.password_file:
        over_http = cast(HttpClient, client)
        over_http.headers = RenewedHeaders(over_http.headers, store, password)
    return client


@contextmanager
def connected(store: ClickHouse) -> Iterator[Client]:
    """Connect for the statements inside. Raises StoreUnavailable, also for theirs, CertificateUnreadable."""
    client = connect(store)
    try:
        with store_unavailable(store):
            yield client
    finally:
        client.close()


class Connection:
    """A client for several threads, connected when the first of them asks for it."""

    def __init__(self, store: ClickHouse) -> None:
        self._store = store
        self._attempt: Future[Client] | None = None
        self._lock = threading.Lock()

    def client(self) -> Client:
        """Return the client. Raises StoreUnavailable, CertificateUnreadable; then the next call tries again.

        Threads that ask while one connects share what becomes of that: a store that hangs costs them its time
        limit once.
        """
        with self._lock:
            is_first = self._attempt is None
            attempt = self._attempt = self._attempt or Future()
        if is_first:
            try:
                attempt.set_result(connect(self._store))
            except BaseException as error:
                self._forget(attempt)
                attempt.set_exception(error)
        return attempt.result()

    def close(self) -> None:
        """Disconnect, also what is just being connected."""
        if (attempt := self._attempt) is not None:
            self._forget(attempt)
            attempt.add_done_callback(_disconnect)

    def _forget(self, attempt: Future[Client]) -> None:
        with self._lock:
            if self._attempt is attempt:
                self._attempt = None


def _disconnect(attempt: Future[Client]) -> None:
    if attempt.exception() is None:
        attempt.result().close()


def moment(at: datetime) -> float:
    """Return a time of a row in seconds since the epoch: one without a zone is in UTC, as tables are."""
    return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()


def without_pandas() -> None:
    """Keep clickhouse-connect from importing pandas at the first insert: that takes seconds, for nothing."""
    vars(options).update(pd=None, pd_time_test=None)


@contextmanager
def store_unavailable(store: ClickHouse) -> Iterator[None]:
    """Translate what clickhouse-connect raises into StoreUnavailable, of which StoreBusy is one."""
    try:
        yield
    except (ClickHouseError, OSError) as error:
        code = getattr(error, "code", None)
        if busy := _busy(store, error):
            raise busy from error
        advice = remedy(code, str(error), store)
        wants = store.url.startswith("https") and not store.ssl_certfile and _BROKEN_OFF.search(str(error))
        if code is None and wants:
            advice += "; if it wants a certificate of its clients, name one in clickhouse.ssl_certfile"
        # Name and password are read only once, at the start; a password file may change.
        heals = code not in NO_LOGIN or bool(store.password_file)
        raise StoreUnavailable(store.url, first_line(error), advice=advice, heals=heals) from error


def _busy(store: ClickHouse, error: BaseException) -> StoreBusy | None:
    """Return the error for a store that is overloaded or gives no answer; None for any other error."""
    lacks = _LACKS.get(getattr(error, "code", None) or 0)
    if lacks is None and _NO_ANSWER.search(str(error)):
        lacks = "answer"
    if lacks is None:
        return None
    reason = _WHILE.sub("", first_line(error))
    allowed = _ALLOWED.search(reason)
    seconds = float(allowed[1]) / (1000 if allowed[2] == "ms" else 1) if allowed else None
    return StoreBusy(store.url, reason, lacks=lacks, advice=_BUSY_ADVICE[lacks], seconds=seconds)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, bounded."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    # urllib3 quotes the request with all its parameters before it says what happened.
    if unreachable := _NO_CONNECTION.search(lines[0]):
        return f"no connection ({unreachable[1]})"
    if handshake := _NO_HANDSHAKE.search(lines[0]):
        plain = ": it is no TLS port" if handshake[1] == "WRONG_VERSION_NUMBER" else ""
        return f"no TLS connection ({handshake[2]}{plain})"
    if "EOF occurred in violation of protocol" in lines[0]:
        return "no TLS connection (the server broke it off)"
    if late := _NO_ANSWER.search(lines[0]):
        return f"no answer within {float(late[1]):g} s"
    told = _AROUND.fullmatch(lines[0])
    return without_secrets(told[1] if told else lines[0])[:400]
