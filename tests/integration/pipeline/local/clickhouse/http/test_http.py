"""The store through plain HTTP, as curl, Grafana and other clients use it: the embedded one as a real server.

`make test-fleet` runs the same against a real server. Where the embedded store departs from one on purpose is
in `test_departures.py`.
"""

from __future__ import annotations

import asyncio
import gzip
import http.client as http_client
import json
import zlib
from collections.abc import AsyncIterator, Callable

import cramjam
import lz4.frame
import pytest
from aiohttp import ClientSession
from clickhouse_connect.driver.client import Client

from pipeline.local.clickhouse.embedded import EmbeddedStore

_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "lz4": lz4.frame.compress,
    "zstd": lambda data: bytes(cramjam.zstd.compress(data)),
}


async def test_ping_and_the_bare_address(http: ClientSession) -> None:
    for path in ("/ping", "/replicas_status", "/"):
        async with http.get(path) as answer:
            assert (answer.status, await answer.text()) == (200, "Ok.\n")


async def test_a_query_in_the_url_answers_in_tab_separated(http: ClientSession) -> None:
    async with http.get("/", params={"query": "SELECT 1, 'a'"}) as answer:
        assert (answer.status, await answer.read()) == (200, b"1\ta\n")
        assert answer.headers["X-ClickHouse-Format"] == "TabSeparated"


async def test_a_format_with_a_head_and_an_end_is_one_document(http: ClientSession) -> None:
    async with http.post("/", data="SELECT number FROM numbers(200000) FORMAT JSON") as answer:
        document = json.loads(await answer.read())
    assert document["rows"] == 200_000
    assert document["data"][-1] == {"number": 199_999}


async def test_an_insert_with_the_statement_in_the_url_counts_its_rows(
    http: ClientSession, table: str, store_client: Client
) -> None:
    params = {"query": f"INSERT INTO {table} FORMAT CSV", "query_id": "my-insert"}
    async with http.post("/", params=params, data="1\n2\n3\n") as answer:
        assert answer.status == 200
        assert json.loads(answer.headers["X-ClickHouse-Summary"])["written_rows"] == "3"
        assert answer.headers["X-ClickHouse-Query-Id"] == "my-insert"
        assert "X-ClickHouse-Format" not in answer.headers
    assert store_client.query(f"SELECT groupArray(a) FROM {table}").result_rows == [([1, 2, 3],)]


async def test_an_insert_in_small_pieces_is_the_same(
    http: ClientSession, table: str, store_client: Client
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for byte in f"/* x */ INSERT INTO {table} (a) VALUES (1), (2), (40)".encode():
            yield bytes([byte])

    async with http.post("/", data=pieces()) as answer:
        assert answer.status == 200, await answer.text()
    assert store_client.query(f"SELECT sum(a) FROM {table}").result_rows == [(43,)]


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("SELECT * FROM nowhere.at_all", 404, 81),
        ("SELECT nothing", 404, 47),
        ("SELECT 1 +", 400, 62),
        ("SELECT 1 FORMAT NoSuchFormat", 404, 73),
        ("SELECT throwIf(1)", 500, 395),
        ("SELECT {x:UInt8}", 500, 456),
        ("SELECT 1; SELECT 2", 400, 62),
        ("", 400, 62),
        ("/* nothing */ -- at all", 400, 62),
    ],
)
async def test_an_error_has_its_status_and_code(
    http: ClientSession, query: str, status: int, code: int
) -> None:
    async with http.post("/", data=query) as answer:
        assert (answer.status, answer.headers["X-ClickHouse-Exception-Code"]) == (status, str(code))
        assert (await answer.text()).startswith(f"Code: {code}. DB::Exception: ")


async def test_rows_that_find_no_room_are_refused(http: ClientSession, table: str) -> None:
    needed = f"ALTER TABLE {table} MODIFY SETTING min_free_disk_bytes_to_perform_insert = {1 << 60}"
    insert = f"INSERT INTO {table} FORMAT TSV\n1\n2\n"
    async with http.post("/", data=needed) as answer:
        assert answer.status == 200, await answer.text()
    async with http.post("/", data=insert) as answer:
        assert (answer.status, answer.headers["X-ClickHouse-Exception-Code"]) == (500, "243")
    async with http.post("/", data=f"SELECT count() FROM {table}") as answer:
        assert await answer.text() == "0\n"


async def test_a_late_error_is_marked_by_the_announced_tag_and_the_answer_has_no_end(
    store: EmbeddedStore,
) -> None:
    query = "SELECT throwIf(number = 250000) FROM numbers(300000) SETTINGS max_block_size = 10000"

    def broken_off() -> tuple[int, bytes, bytes]:
        connection = http_client.HTTPConnection("127.0.0.1", store.port, timeout=60)
        connection.request("POST", "/", query)
        answer = connection.getresponse()
        with pytest.raises(http_client.IncompleteRead) as raised:
            answer.read()
        connection.close()
        return answer.status, answer.headers["X-ClickHouse-Exception-Tag"].encode(), raised.value.partial

    status, tag, body = await asyncio.to_thread(broken_off)
    assert status == 200
    _, _, frame = body.partition(b"\r\n__exception__\r\n" + tag + b"\r\n")
    text, _, length = frame.removesuffix(b" " + tag + b"\r\n__exception__\r\n").rpartition(b"\n")
    assert text.startswith(b"Code: 395. ")
    assert int(length) == len(text) + 1


async def test_get_only_reads_also_in_a_session(http: ClientSession, table: str) -> None:
    for session in ({}, {"session_id": "get-only"}):
        params = {"query": f"INSERT INTO {table} VALUES (1)", **session}
        async with http.get("/", params=params) as answer:
            assert answer.headers["X-ClickHouse-Exception-Code"] == "164"
        async with http.get("/", params={"query": f"SELECT count() FROM {table}", **session}) as answer:
            assert await answer.read() == b"0\n"
    # The GET did not leave the session unable to write.
    async with http.post("/", params=session, data=f"INSERT INTO {table} VALUES (1)") as answer:
        assert answer.status == 200, await answer.text()


async def test_a_busy_session_is_locked_and_an_unknown_one_not_found(http: ClientSession) -> None:
    async def ask(params: dict[str, str]) -> str | None:
        async with http.post("/", params=params, data="SELECT sleep(3)") as answer:
            await answer.read()
            return answer.headers.get("X-ClickHouse-Exception-Code")

    both = await asyncio.gather(ask({"session_id": "busy"}), ask({"session_id": "busy"}))
    assert sorted(both, key=str) == ["373", None]
    assert await ask({"session_id": "never-seen", "session_check": "1"}) == "372"


async def test_a_session_s_settings_last_and_the_url_s_do_not(http: ClientSession) -> None:
    async def ask(query: str, **params: str) -> str:
        async with http.post("/", params={"session_id": "lasting", **params}, data=query) as answer:
            return await answer.text()

    assert await ask("SET max_threads = 3") == ""
    assert await ask("SELECT getSetting('max_threads')") == "3\n"
    assert await ask("SELECT getSetting('max_block_size')", max_block_size="777") == "777\n"
    assert await ask("SELECT getSetting('max_block_size')") != "777\n"


async def test_a_session_ends_with_the_request_that_closes_it(http: ClientSession) -> None:
    async def ask(**params: str) -> str | None:
        async with http.post("/", params={"session_id": "closed", **params}, data="SELECT 1") as answer:
            await answer.read()
            return answer.headers.get("X-ClickHouse-Exception-Code")

    assert await ask() is None
    assert await ask(session_check="1", close_session="1") is None
    assert await ask(session_check="1") == "372"


@pytest.mark.parametrize("coding", sorted(_COMPRESS))
async def test_bodies_of_several_frames_are_read_to_their_end(
    http: ClientSession, table: str, store_client: Client, coding: str
) -> None:
    compress = _COMPRESS[coding]
    lines = [b"".join(b"%d\n" % (part * 1000 + number) for number in range(1000)) for part in range(5)]
    async with http.post(
        "/",
        params={"query": f"INSERT INTO {table} FORMAT TSV"},
        data=b"".join(map(compress, lines)),
        headers={"Content-Encoding": coding},
    ) as answer:
        assert answer.status == 200, await answer.text()
    assert store_client.query(f"SELECT count(), sum(a) FROM {table}").result_rows == [(5000, 12_497_500)]


@pytest.mark.parametrize(
    ("accepted", "coding", "decompress"),
    [
        ("gzip, deflate", "gzip", gzip.decompress),
        ("deflate", "deflate", zlib.decompress),
        ("lz4;q=1, gzip;q=0.5", "lz4", lz4.frame.decompress),
        ("zstd;q=0, gzip;q=0", None, bytes),
        ("identity", None, bytes),
    ],
)
async def test_answers_come_in_an_accepted_coding(
    http: ClientSession, accepted: str, coding: str | None, decompress: Callable[[bytes], bytes]
) -> None:
    query = "SELECT number FROM numbers(100000)"
    for wait in ("0", "1"):
        async with http.post(
            "/", params={"wait_end_of_query": wait}, data=query, headers={"Accept-Encoding": accepted}
        ) as answer:
            assert answer.headers.get("Content-Encoding") == coding
            assert decompress(await answer.read()) == b"".join(b"%d\n" % number for number in range(100_000))


@pytest.mark.parametrize(
    ("coding", "code"), [("gzip", "354"), ("deflate", "354"), ("zstd", "561"), ("lz4", "618")]
)
async def test_broken_data_have_the_code_of_their_coding_and_write_nothing(
    http: ClientSession, table: str, store_client: Client, coding: str, code: str
) -> None:
    whole = _COMPRESS[coding](b"".join(b"%d\n" % number for number in range(1000)))
    async with http.post(
        "/",
        params={"query": f"INSERT INTO {table} FORMAT TSV"},
        data=whole[:20] + bytes(byte ^ 0xFF for byte in whole[20:]),
        headers={"Content-Encoding": coding},
    ) as answer:
        assert (answer.status, answer.headers["X-ClickHouse-Exception-Code"]) == (500, code)
    assert store_client.query(f"SELECT count() FROM {table}").result_rows == [(0,)]


async def test_an_unknown_coding_is_refused(http: ClientSession) -> None:
    async with http.post("/", data=b"SELECT 1", headers={"Content-Encoding": "rot13"}) as answer:
        assert (answer.status, answer.headers["X-ClickHouse-Exception-Code"]) == (501, "48")


async def test_what_no_header_can_hold_stays_out_of_it(http: ClientSession) -> None:
    async with http.post("/", params={"query_id": "a\r\nX-Evil: 1"}, data="SELECT 1") as answer:
        assert (answer.status, answer.headers["X-ClickHouse-Query-Id"]) == (200, "aX-Evil: 1")
        assert "X-Evil" not in answer.headers
    async with http.post("/", params={"default_format": "a\r\nX-Evil: 1"}, data="SELECT 1") as answer:
        assert (answer.status, answer.headers["X-ClickHouse-Exception-Code"]) == (404, "73")
        assert "X-Evil" not in answer.headers


async def test_a_client_that_goes_away_ends_its_query(store: EmbeddedStore, store_client: Client) -> None:
    query = b"SELECT number FROM numbers(1000000000000)"
    reader, writer = await asyncio.open_connection("127.0.0.1", store.port)
    writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(query) + query)
    assert (await reader.read(1000)).startswith(b"HTTP/1.1 200 OK")
    writer.transport.abort()
    running = "SELECT count() FROM system.processes WHERE query LIKE '%numbers(1000000000000)'"
    for _ in range(1200):
        if store_client.query(running).result_rows == [(0,)]:
            break
        await asyncio.sleep(0.1)
    else:
        pytest.fail("the query of a client that is gone still runs after two minutes")


async def test_requests_run_side_by_side(http: ClientSession) -> None:
    async def answer(query: str) -> bytes:
        async with http.post("/", data=query) as answer:
            return await answer.read()

    sleeping = asyncio.create_task(answer("SELECT sleep(3)"))
    await asyncio.sleep(0.1)
    assert await answer("SELECT 1") == b"1\n"
    assert not sleeping.done()
    assert await sleeping == b"0\n"
