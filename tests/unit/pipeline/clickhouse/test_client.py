"""What is told of a ClickHouse that cannot be used."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from pipeline.clickhouse import client as client_module
from pipeline.clickhouse.client import Connection, connect, first_line, store_unavailable
from pipeline.dashboards.page.answers import Answers
from pipeline.errors import StoreBusy, StoreUnavailable
from schemas.settings import ClickHouse

POOL = "Error HTTPConnectionPool(host='a', port=1): Max retries exceeded with url: /?query_id=a (Caused by "


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            POOL + "NewConnectionError(\"HTTPConnection(host='127.0.0.1', port=1): Failed to establish a new "
            'connection: [Errno 111] Connection refused")) executing HTTP request attempt 1 (http://127.0.0.1:1)',
            "no connection (Connection refused)",
        ),
        (
            POOL + "NameResolutionError(\"HTTPConnection(host='gone', port=1): Failed to resolve 'gone' "
            '([Errno -2] Name or service not known)")) executing HTTP request attempt 1 (http://gone:1)',
            "no connection (Name or service not known)",
        ),
        (
            POOL + "SSLError(SSLError(1, '[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)'))) "
            "executing HTTP request attempt 1 (https://127.0.0.1:1)",
            "no TLS connection (wrong version number: it is no TLS port)",
        ),
        (
            POOL + "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate "
            "verify failed: self-signed certificate (_ssl.c:1006)'))) executing HTTP request attempt 1",
            "no TLS connection (certificate verify failed: self-signed certificate)",
        ),
        (
            "Received ClickHouse exception, code: 516, server response: Code: 516. DB::Exception: default: "
            "Authentication failed (AUTHENTICATION_FAILED) (for url http://127.0.0.1:8123)",
            "Code: 516. DB::Exception: default: Authentication failed (AUTHENTICATION_FAILED)",
        ),
        (
            "Error HTTPConnectionPool(host='127.0.0.1', port=8123): Read timed out. (read timeout=30) "
            "executing HTTP request attempt 1 (http://127.0.0.1:8123)",
            "no answer within 30 s",
        ),
        ("Code: 516. DB::Exception: wrong password\nand more", "Code: 516. DB::Exception: wrong password"),
        ("", "RuntimeError"),
    ],
)
def test_the_reason_is_one_line_without_the_request(text: str, line: str) -> None:
    assert first_line(RuntimeError(text)) == line


LONG = (
    "Code: 159. DB::Exception: Timeout exceeded: elapsed 28010.257 ms, maximum: 20000 ms: while executing "
    "function replaceOne on arguments formatReadableSize(__table7.bytes) String. (TIMEOUT_EXCEEDED)"
)


@pytest.mark.parametrize(
    ("code", "text", "lacks", "seconds"),
    [
        (159, LONG, "time", 20.0),
        (160, "Code: 160. DB::Exception: Estimated query execution time is too long", "time", None),
        (241, "Code: 241. DB::Exception: (total) memory limit exceeded: would use 7 GiB", "memory", None),
        (202, "Code: 202. DB::Exception: Too many simultaneous queries. Maximum: 100", "turns", None),
        (None, "Error HTTPConnectionPool(): Read timed out. (read timeout=30) executing", "answer", 30.0),
    ],
)
def test_a_busy_store_is_told_apart_from_one_that_cannot_be_used(
    code: int | None, text: str, lacks: str, seconds: float | None
) -> None:
    error = DatabaseError(text)
    error.code = code
    with pytest.raises(StoreBusy) as raised, store_unavailable(ClickHouse(url="http://store")):
        raise error
    assert (raised.value.lacks, raised.value.seconds, raised.value.heals) == (lacks, seconds, True)
    assert str(raised.value).startswith("ClickHouse at http://store is busy")
    assert "replaceOne" not in str(raised.value)


@pytest.mark.parametrize("url", ["http://localhost:9?colour=red", "http://localhost:99999"])
def test_an_address_that_cannot_be_one_is_an_error_that_waiting_does_not_heal(url: str) -> None:
    with pytest.raises(StoreUnavailable, match=r"correct clickhouse\.url") as refused:
        connect(ClickHouse(url=url))
    assert not refused.value.heals


@pytest.mark.parametrize(("scheme", "first"), [("http", b"POST "), ("https", b"\x16\x03")])
def test_the_scheme_of_the_address_decides_on_tls_and_no_port_does(scheme: str, first: bytes) -> None:
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def take() -> None:
            connection, _ = server.accept()
            with connection:
                received.append(connection.recv(1 << 16))
            server.close()  # it tries again

        taker = threading.Thread(target=take)
        taker.start()
        with pytest.raises(StoreUnavailable):
            connect(ClickHouse(url=f"{scheme}://127.0.0.1:{server.getsockname()[1]}"))
        taker.join()
    assert received[0].startswith(first)


class SlowStore:
    """Attempts to connect last until they are let go, and then fail or not."""

    def __init__(self) -> None:
        self.clients: list[SlowStore.Client] = []
        self.attempts = 0
        self.fails = False
        self.goes_on = threading.Event()

    class Client:
        closed = False
        column_names = result_rows = ()

        def query(self, *_: Any, **__: Any) -> SlowStore.Client:
            return self

        def close(self) -> None:
            self.closed = True

    def connect(self, _store: ClickHouse) -> Any:
        self.attempts += 1
        assert self.goes_on.wait(60)
        if self.fails:
            raise StoreUnavailable("http://store", "no connection")
        self.clients.append(self.Client())
        return self.clients[-1]

    def asked_by_four(self, ask: Callable[[], Any]) -> list[Future[Any]]:
        """Let four threads ask at once, and the attempt go on while all wait."""
        with ThreadPoolExecutor(4) as threads:
            ready = threading.Barrier(5)

            def one() -> Any:
                ready.wait(60)
                return ask()

            asked = [threads.submit(one) for _ in range(4)]
            ready.wait(60)
            time.sleep(0.2)
            self.goes_on.set()
        return asked


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowStore]:
    store = SlowStore()
    monkeypatch.setattr(client_module, "connect", store.connect)
    yield store
    store.goes_on.set()


def test_the_first_statements_of_a_page_share_one_client(slow: SlowStore) -> None:
    answers = Answers(ClickHouse(url="http://store"), 5.0)
    asked = slow.asked_by_four(lambda: answers._run("SELECT 1", {}))
    assert [each.result() for each in asked] == [((), [])] * 4
    assert slow.attempts == 1
    answers.close()
    assert [client.closed for client in slow.clients] == [True]


def test_threads_that_wait_share_a_failure_and_the_next_call_tries_again(slow: SlowStore) -> None:
    slow.fails = True
    connection = Connection(ClickHouse())
    asked = slow.asked_by_four(connection.client)
    assert {type(each.exception()) for each in asked} == {StoreUnavailable}
    assert slow.attempts == 1
    slow.fails = False
    assert connection.client() is connection.client() is slow.clients[0]
    assert slow.attempts == 2


def test_what_is_connected_after_the_end_is_closed_too(slow: SlowStore) -> None:
    connection = Connection(ClickHouse())
    connection.close()
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(connection.client)
        while not slow.attempts:
            time.sleep(0.01)
        connection.close()
        slow.goes_on.set()
        asked.result()
    assert [client.closed for client in slow.clients] == [True]
