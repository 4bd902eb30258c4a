"""Page, index, LMCache's door and metrics over real sockets: who is kept out, and who is not."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from connectors.lmcache.door import Door
from connectors.lmcache.servers import Servers
from connectors.process.health_pages import HealthPages
from connectors.process.login import MOST_WRONG, WRONG_SECONDS
from connectors.publish.publisher import Publisher
from connectors.telemetry.events import Telemetry
from pipeline.dashboards.page.answers import Answers
from pipeline.dashboards.page.findings import Findings
from pipeline.dashboards.page.server import Page
from schemas.settings import ClickHouse, Lmcache, Settings
from tests.support.report_log import ReportLog, report
from tests.support.served_index import Served

TOKEN = "0123456789abcdef"
FreePort = Callable[[], int]


class Doors:
    """All that listens, with or without tokens."""

    def __init__(self, free_port: FreePort, token: str) -> None:
        async def nothing() -> dict[str, Any]:
            return {}

        nowhere = ClickHouse(url=f"http://127.0.0.1:{free_port()}")
        self.page_port = free_port()
        self.page = Page(
            Answers(nowhere, 1.0), "127.0.0.1", self.page_port, findings=Findings(nothing), token=token
        )
        self.index = Served(token=token)
        self.index.catch_up()
        settings = Settings(lmcache=Lmcache(models="m", token=token))
        self.log, self.telemetry = ReportLog(), Telemetry()
        self.servers = Servers(
            settings, cast(Publisher, self.log), cast(Any, self.log), self.telemetry, lambda name: False
        )
        self.door = Door(settings.lmcache, self.servers, self.telemetry, most_bytes=1 << 16)
        self.metrics_port = free_port()
        self.metrics = HealthPages(
            "127.0.0.1",
            self.metrics_port,
            setting="connector.metrics_port",
            registry=self.telemetry.registry,
            unready=lambda: None,
        )

    @property
    def ports(self) -> dict[str, int]:
        return {
            "page": self.page_port,
            "index": self.index.server.port,
            "door": self.door.port,
            "metrics": self.metrics_port,
        }

    async def start(self, stack: AsyncExitStack) -> None:
        for one in (self.page, self.index.server, self.door, self.metrics):
            await one.start()
            stack.push_async_callback(one.stop)

    async def ask(
        self, name: str, method: str, path: str, *headers: bytes, body: bytes = b"", host: str = "127.0.0.1"
    ) -> tuple[int, bytes]:
        """Send bytes as they are, and return status and body."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[name])
        lines = [
            f"{method} {path} HTTP/1.1".encode("latin-1"),
            b"Connection: close",
            f"Host: {host}".encode(),
        ]
        if body:
            lines.append(b"Content-Length: %d" % len(body))
        writer.write(b"\r\n".join([*lines, *headers]) + b"\r\n\r\n" + body)
        try:
            answer = await reader.read()
        finally:
            writer.close()
        head, _, text = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]), text


@asynccontextmanager
async def opened(free_port: FreePort, token: str) -> AsyncIterator[Doors]:
    doors = Doors(free_port, token)
    async with AsyncExitStack() as stack:
        await doors.start(stack)
        yield doors


@pytest.fixture
async def doors(free_port: FreePort) -> AsyncIterator[Doors]:
    """Without a login, on loopback: what is the default on a desk."""
    async with opened(free_port, "") as found:
        yield found


@pytest.fixture
async def locked(free_port: FreePort) -> AsyncIterator[Doors]:
    async with opened(free_port, TOKEN) as found:
        yield found


READS = [("page", "/api/boards"), ("index", "/replicas"), ("index", "/metrics"), ("metrics", "/metrics")]


@pytest.mark.parametrize(("name", "path"), READS)
async def test_no_page_of_another_site_reads(doors: Doors, name: str, path: str) -> None:
    for said in (b"Origin: http://elsewhere.example", b"Origin: null", b"Sec-Fetch-Site: same-site"):
        assert (await doors.ask(name, "GET", path, said))[0] == 403
    assert (await doors.ask(name, "GET", path, host="elsewhere.example"))[0] == 403
    for host in ("127.0.0.1", "localhost:1", "[::1]"):
        assert (await doors.ask(name, "GET", path, host=host))[0] == 200
    assert (await doors.ask(name, "GET", path, b"Sec-Fetch-Site: same-origin"))[0] == 200


async def test_a_link_to_the_page_still_leads_there(doors: Doors) -> None:
    link = (b"Sec-Fetch-Site: cross-site", b"Sec-Fetch-Mode: navigate", b"Sec-Fetch-Dest: document")
    assert (await doors.ask("page", "GET", "/?board=model", *link))[0] == 200
    assert (await doors.ask("page", "GET", "/?board=model", link[0], *link[2:]))[0] == 403


WRITES = [
    ("door", "/events", report(1)),
    ("door", "/instances", b'{"instance_id": "from-a-web-page"}'),
    ("index", "/query_by_hash", b'{"model_name": "m", "block_hashes": [1]}'),
    ("index", "/choices", b"{}"),
]


@pytest.mark.parametrize(("name", "path", "body"), WRITES)
async def test_no_page_of_another_site_writes(doors: Doors, name: str, path: str, body: bytes) -> None:
    json_type = b"Content-Type: application/json"
    for said in (b"Origin: http://elsewhere.example", b"Sec-Fetch-Site: cross-site"):
        assert (await doors.ask(name, "POST", path, json_type, said, body=body))[0] == 403
    assert (await doors.ask(name, "POST", path, json_type, body=body, host="elsewhere.example"))[0] == 403
    for sent in ((b"Content-Type: text/plain",), ()):
        status, text = await doors.ask(name, "POST", path, *sent, body=body)
        assert status == 415
        assert b"application/json" in text
    assert doors.log.records == []
    assert not doors.servers.beat("from-a-web-page")
    counted = doors.telemetry.registry.get_sample_value
    if name == "door":
        reason = {"reason": "foreign_page"}
        assert counted("kvlens_connector_refused_reports_total", reason) == 3
    else:
        assert (doors.index.refused("foreign_page"), doors.index.refused("content_type")) == (3, 2)
    assert (await doors.ask(name, "POST", path, json_type, body=body))[0] not in (403, 415)


@pytest.mark.parametrize(
    ("name", "path", "status"),
    [("page", "/", 400), ("index", "/query_by_hash", 400), ("door", "/events", 422)],
)
async def test_a_body_that_cannot_be_unpacked_is_not_our_failure(
    doors: Doors, name: str, path: str, status: int
) -> None:
    said = (b"Content-Type: application/json", b"Content-Encoding: gzip")
    assert (await doors.ask(name, "POST", path, *said, body=b"not packed"))[0] == status
    counted = {
        "index": doors.index.refused("malformed"),
        "door": doors.telemetry.registry.get_sample_value(
            "kvlens_connector_refused_reports_total", {"reason": "malformed"}
        ),
    }
    assert counted.get(name, 1) == 1


async def test_a_form_that_does_not_come_is_not_waited_for(
    locked: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.process.login.BODY_SECONDS", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", locked.page_port)
    writer.write(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\ntoken=")
    assert b" 408 " in await asyncio.wait_for(reader.readline(), 10)
    writer.close()


UNDECODABLE = (
    b"Authorization: Bearer \xff\xfe",
    b"Authorization: Bearer " + TOKEN.encode() + b"\xff",
    b"Cookie: kvlens=\xff.\xfe",
    b'Cookie: kvlens="\\377.\\200"',
    b"Authorization: \xff",
)


@pytest.mark.parametrize(
    ("name", "method", "path"),
    [("page", "GET", "/api/boards"), ("index", "GET", "/replicas"), ("door", "POST", "/events")],
)
async def test_what_is_no_text_is_no_login(locked: Doors, name: str, method: str, path: str) -> None:
    said = [
        *UNDECODABLE,
        *([b"Authorization: Basic /w==", b"Authorization: Basic \xff"] if name == "door" else []),
    ]
    with capture_logs() as logs:
        for header in said:
            assert (await locked.ask(name, method, path, header))[0] == 401, header
    events = [line["event"] for line in logs]
    assert events.count("wrong_token") == 1
    assert len(events) == len(set(events))
    if name == "index":
        assert locked.index.refused("no_token") == len(said)


@pytest.mark.parametrize(
    "sent", [b"token=%ff%fe", b"token=\xff", b"token", b"&" * 100, b'{"token": 1}', b"\xff" * 9]
)
async def test_a_form_that_is_none_is_a_wrong_token(
    locked: Doors, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.process.login.WRONG_SECONDS", 0.0)
    for kind in (b"application/x-www-form-urlencoded; charset=nonsense", b"multipart/form-data; boundary=x"):
        assert (await locked.ask("page", "POST", "/", b"Content-Type: " + kind, body=sent))[0] == 401


@pytest.mark.parametrize(
    "path",
    [
        *("/static/x%00.js", "/static/" + "a" * 5000 + ".js", "/static/%ff.js"),
        *(
            "/static/" + "a/" * 3000 + "x.js",
            "/static/..%2fserver.py",
            "/static/../server.py",
            "/static/%0a.css",
        ),
        *("/api/panels/%00", "/api/panels/" + "x" * 5000, "/api/annotations/%ff"),
    ],
)
async def test_names_that_no_file_has_are_not_found(doors: Doors, path: str) -> None:
    with capture_logs() as logs:
        status, _ = await doors.ask("page", "GET", path)
    assert (status, logs) == (404, [])
    for name in ("index", "door", "metrics"):
        assert (await doors.ask(name, "GET", path))[0] in (404, 405)


async def test_what_is_no_request_has_one_line_in_the_log(
    doors: Doors, caplog: pytest.LogCaptureFixture
) -> None:
    for name in doors.ports:
        for path in ("/static/\xff.js", "/\x00"):
            assert (await doors.ask(name, "GET", path))[0] == 400
    assert len(caplog.records) <= 1  # one a minute, of the process
    assert all(record.exc_info is None for record in caplog.records)


async def test_wrong_bearer_tokens_wait_and_right_ones_do_not(locked: Doors) -> None:
    async def asked(token: str) -> tuple[int, float]:
        began = time.monotonic()
        status, _ = await locked.ask("page", "GET", "/api/boards", b"Authorization: Bearer " + token.encode())
        return status, time.monotonic() - began

    wrong = [asyncio.create_task(asked(f"wrong{number}")) for number in range(MOST_WRONG + 40)]
    refused, _ = await asyncio.wait(wrong, return_when=asyncio.FIRST_COMPLETED)
    assert refused
    assert (await asked(TOKEN))[0] == 200
    waiting = [task for task in wrong if not task.done()]
    assert len(waiting) > MOST_WRONG // 2  # of those that have a place, a second each
    for task in waiting:
        task.cancel()
    await asyncio.gather(*wrong, return_exceptions=True)
    found = [task.result() for task in wrong if not task.cancelled()]
    assert {status for status, _ in found} <= {401, 429}
    assert sum(status == 429 for status, _ in found) == 40
    assert all(seconds >= WRONG_SECONDS for status, seconds in found if status == 401)


async def test_the_index_fails_in_its_own_form(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("no replicas")

    monkeypatch.setattr(doors.index.server._index, "replicas", fails)
    with capture_logs() as logs:
        for _ in range(3):
            status, text = await doors.ask("index", "GET", "/replicas")
            assert (status, json.loads(text)["error"]) == (500, "failed")
    assert len(logs) == 1
    assert doors.index.refused("failed") == 3
