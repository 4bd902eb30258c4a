"""What is told of a ClickHouse that cannot be used."""

from __future__ import annotations

import socket
import threading

import pytest

from pipeline.clickhouse.client import connect, first_line
from pipeline.errors import StoreUnavailable
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
        ("Code: 516. DB::Exception: wrong password\nand more", "Code: 516. DB::Exception: wrong password"),
        ("", "RuntimeError"),
    ],
)
def test_the_reason_is_one_line_without_the_request(text: str, line: str) -> None:
    assert first_line(RuntimeError(text)) == line


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
