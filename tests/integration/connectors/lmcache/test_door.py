"""`POST /events` over real sockets: what is taken, and what is refused, counted and bounded."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp
import pytest

from connectors.lmcache import door as door_of_lmcache
from connectors.lmcache import servers as servers_of_lmcache
from connectors.lmcache.door import MOST_AT_ONCE, Door
from connectors.lmcache.servers import Servers
from connectors.publish.publisher import Publisher
from connectors.sources import Source, SourceKey
from connectors.telemetry.events import Telemetry
from schemas.events import Capacity
from schemas.positions import PositionRecord
from schemas.settings import Connector, Lmcache, Settings
from tests.support.report_log import ReportLog, report

TOKEN = "0123456789abcdef"
MOST_BYTES = 64 << 10


@asynccontextmanager
async def opened(
    log: ReportLog | None = None, **lmcache: Any
) -> AsyncIterator[tuple[Door, ReportLog, Servers, Telemetry]]:
    settings = Settings(
        connector=Connector(max_frame_bytes=MOST_BYTES), lmcache=Lmcache(models="m", **lmcache)
    )
    log, telemetry = log or ReportLog(), Telemetry()
    servers = Servers(
        settings, cast(Publisher, log), cast(Any, log), telemetry, lambda name: name == "taken@m"
    )
    door = Door(settings.lmcache, servers, telemetry, most_bytes=MOST_BYTES)
    await door.start()
    try:
        yield door, log, servers, telemetry
    finally:
        await door.stop()


async def posted(door: Door, body: Any, **headers: str) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{door.port}/events", data=body, headers=headers) as answer,
    ):
        return answer.status


def basic_auth(password: str) -> str:
    return "Basic " + base64.b64encode(f"anybody:{password}".encode()).decode()


def refused(telemetry: Telemetry, reason: str) -> float:
    found = telemetry.registry.get_sample_value("kvlens_connector_refused_reports_total", {"reason": reason})
    return found or 0.0


async def test_reports_become_records() -> None:
    async with opened() as (door, log, servers, _):
        assert [await posted(door, report(seq)) for seq in (1, 2, 2, 4)] == [200] * 4
        servers.flush()
    numbers = [batch.seq for record in log.records for batch in record.batches if batch.seq is not None]
    assert ({record.replica for record in log.records}, numbers) == ({"a@m"}, [0, 1, 3])


async def test_a_token_is_taken_as_bearer_or_as_password_of_the_url() -> None:
    async with opened(token=TOKEN) as (door, log, servers, telemetry):
        basic = basic_auth(TOKEN)
        wrong = basic_auth("no")
        assert await posted(door, report(1), Authorization=f"Bearer {TOKEN}") == 200
        assert await posted(door, report(2), Authorization=basic) == 200
        for said in (
            {},
            {"Authorization": wrong},
            {"Authorization": "Basic !"},
            {"Authorization": "Bearer é"},
        ):
            assert await posted(door, report(3), **said) == 401
        servers.flush()
        assert refused(telemetry, "no_token") == 4
    assert sum(record.first_seq is not None for record in log.records) >= 1


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"", 422, "malformed"),
        (b"\xff" * 100, 422, "malformed"),
        (b" " * (MOST_BYTES + 1), 413, "too_large"),
        (b'{"batches": [{}]}', 200, "bad_batch"),
        (report(1, "taken"), 200, "replica_id_taken"),
        (report(1, "no\nname"), 200, "bad_name"),
    ],
)
async def test_what_is_refused_is_counted(body: bytes, status: int, reason: str) -> None:
    async with opened() as (door, log, servers, telemetry):
        assert await posted(door, body) == status
        servers.flush()
        assert refused(telemetry, reason) == 1
        assert log.records == []


async def test_a_body_of_unknown_length_is_bounded_as_well() -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(MOST_BYTES // 1024 + 2):
            yield b" " * 1024

    async with opened() as (door, _, _, telemetry):
        assert await posted(door, endless()) == 413
        assert refused(telemetry, "too_large") == 1


async def test_no_more_sources_than_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers_of_lmcache, "MAX_SOURCES", 2)
    async with opened() as (door, log, servers, telemetry):
        assert [await posted(door, report(1, name)) for name in ("a", "b", "c")] == [200] * 3
        servers.flush()
        assert refused(telemetry, "too_many_sources") == 1
    assert {record.replica for record in log.records} == {"a@m", "b@m"}


async def test_where_kafka_does_not_keep_up_requests_are_refused_and_nothing_of_them_is_taken() -> None:
    async with opened() as (door, log, servers, telemetry):
        log.free.clear()
        found = await asyncio.gather(*(posted(door, report(seq)) for seq in range(1, MOST_AT_ONCE + 4)))
        assert found == [503] * len(found)
        assert refused(telemetry, "busy") == len(found)
        log.free.set()
        servers.flush()
        assert log.records == []


class SlowLog(ReportLog):
    """Takes its time to say how far the log is with sources that are new."""

    def __init__(self) -> None:
        super().__init__()
        self.resumes = asyncio.Event()
        self.resumes.set()

    async def resume(self, sources: Sequence[Source]) -> dict[SourceKey, PositionRecord]:
        await self.resumes.wait()
        return await super().resume(sources)


async def test_what_has_been_decoded_is_taken_however_long_positions_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second declaration ends the capacity of the first: that is known only when it first comes."""
    monkeypatch.setattr(door_of_lmcache, "TAKE_SECONDS", 0.2)
    log = SlowLog()

    def declared(seq: int, backend: str, revision: int) -> bytes:
        one = {"event_type": "config", "tier": "l2", "backend": backend, "entries": []}
        return report(seq, **one, capacity_bytes=100, capacity_revision=revision)

    async with opened(log) as (door, _, servers, telemetry):
        assert await posted(door, declared(1, "fs", 1)) == 200
        log.resumes.clear()
        first = asyncio.create_task(posted(door, declared(2, "nixl_store", 2)))
        await asyncio.sleep(1.0)
        assert await posted(door, report(3)) == 503  # meanwhile there is no room for others
        log.resumes.set()
        assert await first == 200
        assert await posted(door, declared(2, "nixl_store", 2)) == 200
        assert await posted(door, report(3)) == 200
        servers.flush()
        assert refused(telemetry, "busy") == 1
    assert log.numbers("a:fs@m") == [1, 2, 3]
    capacities = [
        (event.medium, event.capacity_bytes)
        for record in log.records
        if record.replica != "a@m"
        for batch in record.batches
        for event in batch.events
        if isinstance(event, Capacity)
    ]
    assert sorted(capacities) == [
        ("lmcache-l2-fs", 0),
        ("lmcache-l2-fs", 100),
        ("lmcache-l2-nixl_store", 100),
    ]


async def asked(door: Door, method: str, path: str, **more: Any) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"http://127.0.0.1:{door.port}{path}", **more) as answer,
    ):
        return answer.status, await answer.json() if answer.content_type == "application/json" else None


async def test_heartbeats_are_answered_as_a_coordinator_answers_them() -> None:
    async with opened() as (door, _, _, telemetry):
        says = {"instance_id": "a/b", "ip": "10.0.0.1", "http_port": 8080, "metadata": {}, "mq_port": 0}
        assert await asked(door, "PUT", "/instances/a%2Fb/heartbeat") == (404, {"error": "not registered"})
        for before in (False, True):
            told = (200, {"instance_id": "a/b", "re_registered": before})
            assert await asked(door, "POST", "/instances", json=says) == told
        assert await asked(door, "PUT", "/instances/a%2Fb/heartbeat") == (200, {"instance_id": "a/b"})
        assert await asked(door, "DELETE", "/instances/a%2Fb") == (204, None)
        assert (await asked(door, "PUT", "/instances/a%2Fb/heartbeat"))[0] == 404
        for bad in (b"", b"{}", b'{"instance_id": ""}'):
            assert (await asked(door, "POST", "/instances", data=bad))[0] == 422
        assert refused(telemetry, "malformed") == 3


async def test_registrations_are_bounded_and_need_the_token_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers_of_lmcache, "MAX_SOURCES", 1)
    async with opened(token=TOKEN) as (door, _, servers, telemetry):
        headers = {"Authorization": f"Bearer {TOKEN}"}
        for server, status in (("a", 200), ("b", 503)):
            found = await asked(door, "POST", "/instances", json={"instance_id": server}, headers=headers)
            assert found[0] == status
        for method, path in (
            ("POST", "/instances"),
            ("PUT", "/instances/a/heartbeat"),
            ("DELETE", "/instances/a"),
        ):
            assert (await asked(door, method, path, json={"instance_id": "a"}))[0] == 401
        assert servers.beat("a")
        assert (refused(telemetry, "no_token"), refused(telemetry, "too_many_sources")) == (3, 1)
