"""Servers that come and go: what ends when nothing is heard of them, and what goes on."""

from __future__ import annotations

import asyncio
import time
import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest

from connectors.lmcache import servers as servers_of_lmcache
from connectors.lmcache.liveness import HEARTBEAT_SECONDS, LEAVING_SECONDS, MADE_UP_SECONDS
from connectors.lmcache.servers import Servers
from connectors.order.idle import IdleReports
from connectors.positions import ledger
from connectors.publish.publisher import Publisher
from connectors.telemetry.events import Telemetry
from schemas.events import Closed, Gap, Opened, SourceStatus
from schemas.settings import Connector, Lmcache, Settings
from tests.support.report_log import ReportLog, report

SILENT = 3600.0
WEEK = 7 * 86_400.0


def servers_of(log: ReportLog, **lmcache: Any) -> Servers:
    settings = Settings(
        connector=Connector(linger_seconds=60.0),
        lmcache=Lmcache(models="m", port=1, silent_seconds=SILENT, **lmcache),
    )
    return Servers(settings, cast(Publisher, log), cast(Any, log), Telemetry(), lambda name: False)


async def told(servers: Servers, *reports: bytes, at: float, posted: bool = False) -> dict[str, int]:
    return dict(await servers.take([(one, at) for one in reports], at, posted=posted))


def private(seq: int, server: str = "a") -> bytes:
    return report(seq, server, tier="l2", backend="fs")


def shared(seq: int, server: str = "a") -> bytes:
    return report(seq, server, tier="l2", backend="s3", shared=True)


def ends(log: ReportLog, replica: str) -> list[str]:
    return [event.reason for event in log.notices(replica) if isinstance(event, Closed)]


async def test_restarted_without_an_id_the_server_before_ends_and_leaves_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(servers_of_lmcache, "MAX_SOURCES", 2)
    log, now = ReportLog(), time.time()
    servers = servers_of(log)
    for turn in range(20):
        server = str(uuid.uuid4())
        begins = now + turn * MADE_UP_SECONDS
        assert await told(servers, report(1, server), private(2, server), at=begins) == {}
        servers.look(IdleReports(), begins + MADE_UP_SECONDS - 1.0)
        assert ends(log, f"{server}@m") == []
        servers.look(IdleReports(), begins + MADE_UP_SECONDS)
        assert ends(log, f"{server}@m") == ends(log, f"{server}:fs@m") == ["silent"]
    assert servers.streams == {}
    assert len(log.forgotten) == len({*log.forgotten}) == 40


async def test_what_several_servers_share_outlives_them_and_their_own_storage_does_not() -> None:
    log, now = ReportLog(), time.time()
    servers = servers_of(log)
    await told(servers, private(1), shared(2), shared(1, "b"), at=now)
    await told(servers, report(2, "b"), at=now + 1000.0)
    servers.look(IdleReports(), now + SILENT)
    assert {replica for replica, _ in servers.streams} == {"b@m", "pool:s3@m"}
    assert ends(log, "a@m") == ends(log, "a:fs@m") == ["silent"]
    servers.look(IdleReports(), now + SILENT + 1000.0)
    assert {replica for replica, _ in servers.streams} == {"pool:s3@m"}
    assert ends(log, "pool:s3@m") == []
    await told(servers, shared(3, "b"), shared(3), at=now + 2 * SILENT)
    servers.flush()
    assert log.numbers("pool:s3@m") == [1, 2, 3, 4, 5]


async def test_a_server_that_comes_back_goes_on_as_another_life_and_nothing_counts_twice() -> None:
    log, now = ReportLog(), time.time()
    servers = servers_of(log)
    await told(servers, report(1), report(2), private(3), at=now)
    servers.look(IdleReports(), now + SILENT)
    await told(servers, report(2), private(3), report(4), private(5), at=now + 2 * SILENT)
    servers.flush()
    assert log.numbers("a@m") == [0, 1, 2, 3, 4]
    openings = [event for event in log.notices("a@m") if isinstance(event, Opened)]
    assert [(event.first_seq, event.complete) for event in openings] == [(0, True), (3, False)]
    assert [event.complete for event in log.notices("a:fs@m") if isinstance(event, Opened)] == [False, False]


async def test_heartbeats_keep_an_idle_server_and_tell_soon_that_it_is_gone() -> None:
    log, now = ReportLog(), time.time()
    servers = servers_of(log)
    assert not servers.beat("a")
    assert servers.register("a") is False
    assert servers.beat("a")
    assert servers.register("a") is True
    await told(servers, report(1), private(2), at=now)
    servers.look(IdleReports(), now + HEARTBEAT_SECONDS - 5.0)
    assert ends(log, "a@m") == []
    assert servers.connected(("a:fs@m", 0))
    servers.look(IdleReports(), time.time() + HEARTBEAT_SECONDS)
    assert (ends(log, "a@m"), ends(log, "a:fs@m")) == (["silent"], [])
    assert not servers.connected(("a:fs@m", 0))
    idle = IdleReports()
    for second in (100.0, 120.0):
        servers.look(idle, now + second)
    servers.flush()
    assert log.notices("a:fs@m")[-1] == SourceStatus(connected=False)
    servers.register("a")
    servers.leaves("a")
    await told(servers, report(3), at=now)  # the last second is reported after that
    servers.look(IdleReports(), time.time() + LEAVING_SECONDS)
    assert ends(log, "a@m") == ["silent", "removed"]


async def test_who_was_silent_before_what_is_unread_is_not_taken_to_be_gone() -> None:
    log, now = ReportLog(), time.time()
    servers = servers_of(log)
    await told(servers, report(1), at=now - WEEK)
    await told(servers, report(1, "b"), at=now - WEEK)
    servers.read_to = now - WEEK + SILENT - 1.0
    servers.look(IdleReports(), now)
    assert ends(log, "a@m") == []
    servers.read_to = now - WEEK + SILENT
    await told(servers, report(2), at=servers.read_to)
    servers.look(IdleReports(), now)
    assert (ends(log, "a@m"), ends(log, "b@m")) == ([], ["silent"])


async def test_a_successor_ends_servers_that_fell_silent_with_its_predecessor() -> None:
    log, now = ReportLog(), time.time()
    before = servers_of(log)
    await told(before, report(1), private(2), shared(3), report(1, "b"), at=now)
    before.look(IdleReports(), now + 1.0)
    before.flush()
    servers = servers_of(log)
    servers.start()
    deadline = time.monotonic() + 60.0
    while len(servers.streams) < 4:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    await servers.stop()
    await told(servers, report(2, "b"), at=now + SILENT)
    servers.look(IdleReports(), now + SILENT)
    assert ends(log, "a@m") == []  # it was not heard by this one, which has not run for so long
    servers.look(IdleReports(), time.time() + SILENT)
    assert ends(log, "a@m") == ends(log, "a:fs@m") == ["silent"]
    assert {replica for replica, _ in servers.streams} == {"b@m", "pool:s3@m"}


async def test_a_clock_that_jumps_ends_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a machine was suspended."""
    monkeypatch.setattr(servers_of_lmcache, "LOOK_SECONDS", 0.01)
    log = ReportLog()
    servers = servers_of(log)
    looked: list[float] = []
    look = servers.look

    def noted(reports: IdleReports, now: float) -> None:
        looked.append(now)
        look(reports, now)

    monkeypatch.setattr(servers, "look", noted)
    clock = SimpleNamespace(time=time.time, thread_time=time.thread_time)
    monkeypatch.setattr(servers_of_lmcache, "time", clock)
    servers.start()
    deadline = time.monotonic() + 60.0
    while len(looked) < 2:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    await told(servers, report(1), private(2), at=time.time())
    jumped = time.time() + 2 * SILENT
    clock.time = lambda: jumped
    while looked[-3:] != [jumped] * 3:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    await servers.stop()
    assert servers.streams.keys() == {("a@m", 0), ("a:fs@m", 0)}


async def test_sources_of_others_are_not_gone_on_with() -> None:
    log = ReportLog()
    await told(servers_of(log), report(1), at=time.time())
    settings = Settings(lmcache=Lmcache(models="another", port=1))
    servers = Servers(settings, cast(Publisher, log), cast(Any, log), Telemetry(), lambda name: False)
    servers.start()
    await asyncio.sleep(0.1)
    await servers.stop()
    assert servers.streams == {}


async def test_reports_over_http_count_while_the_topic_cannot_be_read() -> None:
    log, now = ReportLog(), time.time()
    servers = servers_of(log, topic="t")
    assert not servers.reached
    servers.reached = True
    await told(servers, report(1, "kafka"), private(2, "kafka"), shared(3, "kafka"), at=now)
    posting = report(1, "http"), private(2, "http"), report(3, "http", tier="l2", backend="fs", shared=True)
    await told(servers, *posting, at=now, posted=True)
    servers.reached, servers.read_to = False, 0.0
    places = ["kafka@m", "kafka:fs@m", "pool:s3@m", "http@m", "http:fs@m", "pool:fs@m"]
    assert [servers.connected((place, 0)) for place in places] == [False] * 3 + [True] * 3
    servers.look(IdleReports(), now + SILENT)
    assert [ends(log, place) for place in places] == [[], [], [], ["silent"], ["silent"], []]
    servers.register("http")
    servers.register("kafka")
    later = time.time() + SILENT
    await told(servers, report(4, "http"), at=now, posted=True)
    servers.look(IdleReports(), later)
    assert (ends(log, "kafka@m"), ends(log, "http@m")) == ([], ["silent", "silent"])
    await told(servers, shared(5, "http"), at=later, posted=True)
    assert not servers.connected(("pool:s3@m", 0))  # others that write there would not be heard
    await told(servers, shared(4, "kafka"), at=later, posted=True)  # it has been started again without Kafka
    assert servers.connected(("pool:s3@m", 0))
    assert servers.connected(("kafka@m", 0))


async def test_what_servers_that_are_gone_have_written_to_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger, "MOST_EMITTERS", 3)
    log, now = ReportLog(), time.time()
    servers = servers_of(log)
    for turn in range(10):
        server = str(uuid.uuid4())
        begins = now + turn * MADE_UP_SECONDS
        await told(servers, report(1, server), private(2, server), shared(3, server), at=begins)
        servers.look(IdleReports(), begins + MADE_UP_SECONDS)
    assert servers.streams.keys() == {("pool:s3@m", 0)}
    assert len(servers._storage) == 3


async def test_a_server_that_comes_back_has_lost_nothing_of_what_it_shares() -> None:
    log, now = ReportLog(), time.time()
    servers = servers_of(log)
    await told(servers, report(1), shared(2), at=now)
    servers.look(IdleReports(), now + SILENT)
    assert servers.streams.keys() == {("pool:s3@m", 0)}
    await told(servers, report(3), report(4), shared(5), at=now + SILENT)
    servers.flush()
    assert log.numbers("pool:s3@m") == [1, 2, 3, 4]
    assert not [event for event in log.notices("pool:s3@m") if isinstance(event, Gap)]
