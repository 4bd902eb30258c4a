"""Where the embedded store departs from a server on purpose: it refuses more, and says what it cannot do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import lz4.frame
import pytest
from aiohttp import ClientConnectionError, ClientSession
from clickhouse_connect.driver.client import Client

from pipeline.local.clickhouse.embedded import EmbeddedStore


async def test_a_cut_body_writes_nothing(
    http: ClientSession, store: EmbeddedStore, table: str, store_client: Client
) -> None:
    frame = lz4.frame.compress(b"1\n" * 100_000)
    async with http.post(
        "/",
        params={"query": f"INSERT INTO {table} FORMAT TSV"},
        data=frame[:-10],
        headers={"Content-Encoding": "lz4"},
    ) as answer:
        assert answer.headers["X-ClickHouse-Exception-Code"] == "618"

    async def breaking_off() -> AsyncIterator[bytes]:
        yield b"1\n2\n"
        raise ClientConnectionError("the client dies")

    with pytest.raises(ClientConnectionError):
        await http.post("/", params={"query": f"INSERT INTO {table} FORMAT TSV"}, data=breaking_off())

    _, writer = await asyncio.open_connection("127.0.0.1", store.port)
    body = b"1\n2\n3\n"
    target = f"/?query=INSERT%20INTO%20{table}%20FORMAT%20TSV"
    writer.write(f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n".encode() + body)
    await writer.drain()
    writer.close()
    await asyncio.sleep(0.5)
    assert store_client.query(f"SELECT count() FROM {table}").result_rows == [(0,)]


async def test_block_compression_is_refused_in_words(http: ClientSession) -> None:
    async with http.post("/", params={"compress": "1"}, data="SELECT 1") as answer:
        assert answer.status == 501
        assert "Accept-Encoding" in await answer.text()


async def test_data_for_a_select_are_refused_in_words(http: ClientSession) -> None:
    query = "INSERT INTO t SELECT * FROM input('a UInt8') FORMAT CSV\n1\n"
    async with http.post("/", data=query) as answer:
        assert (answer.status, answer.headers["X-ClickHouse-Exception-Code"]) == (501, "48")
        assert "input()" in await answer.text()


async def test_writing_where_only_reading_is_allowed_is_the_client_s_fault(http: ClientSession) -> None:
    """A server says 500."""
    async with http.get("/", params={"query": "CREATE TABLE t (a UInt8) ENGINE = Memory"}) as answer:
        assert (answer.status, answer.headers["X-ClickHouse-Exception-Code"]) == (400, "164")


async def test_brotli_is_not_spoken(http: ClientSession) -> None:
    async with http.post("/", data="SELECT 1", headers={"Accept-Encoding": "br"}) as answer:
        assert (answer.headers.get("Content-Encoding"), await answer.read()) == (None, b"1\n")
    async with http.post("/", data=b"SELECT 1", headers={"Content-Encoding": "br"}) as answer:
        assert (answer.status, answer.headers["X-ClickHouse-Exception-Code"]) == (501, "48")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://example.org"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
        {"Host": "rebound.example.org"},
    ],
)
async def test_pages_of_other_sites_reach_nothing(http: ClientSession, headers: dict[str, str]) -> None:
    async with http.post("/", data="SELECT 1", headers=headers) as answer:
        assert (answer.status, answer.headers["X-ClickHouse-Exception-Code"]) == (403, "497")


@pytest.mark.parametrize("statement", [b"SELECT '\xff'", b"INSERT INTO `\xff` FORMAT TSV\n1\n"])
async def test_a_statement_that_is_no_text_is_the_client_s_fault(
    http: ClientSession, statement: bytes
) -> None:
    async with http.post("/", data=statement) as answer:
        assert (answer.status, answer.headers["X-ClickHouse-Exception-Code"]) == (400, "62")


@pytest.mark.parametrize("timeout", ["²", "soon", "9" * 400])
async def test_a_session_whose_timeout_is_no_number_is_kept_and_is_free(
    http: ClientSession, timeout: str
) -> None:
    """A server refuses such a request."""
    params = {"session_id": f"strange-{timeout[:4]}", "session_timeout": timeout}
    said = []
    for statement in ("SET max_threads = 3", "SELECT getSetting('max_threads')"):
        async with http.post("/", params=params, data=statement) as answer:
            said.append((answer.status, await answer.text()))
    assert said == [(200, ""), (200, "3\n")]
