"""Which servers are taken to be gone, by heartbeats, by silence, and by their ids."""

from __future__ import annotations

import uuid

import pytest

from connectors.lmcache.decoder import Place
from connectors.lmcache.liveness import (
    HEARTBEAT_SECONDS,
    LEAVING_SECONDS,
    MADE_UP_SECONDS,
    Liveness,
    made_up,
)
from connectors.process.absence import CONFIRM_SECONDS

NOW = 1_800_000_000.0
SILENT = 3600.0
MADE_UP = str(uuid.UUID("6b1f0d6e-0f8e-4b59-9b7c-0a5e3f1d2c4b"))
MEMORY, STORAGE, POOL = Place("a", "", "m"), Place("a", "fs", "m"), Place("", "s3", "m")


def of(server: str, place: Place) -> Place:
    return Place(server, place.backend, place.model)


@pytest.mark.parametrize(
    "server", ["a", "node-1", MADE_UP.replace("-", ""), MADE_UP + "x", str(uuid.UUID(int=1))]
)
def test_ids_that_somebody_gave_are_not_made_up(server: str) -> None:
    assert not made_up(server)


def test_ids_that_servers_take_are_made_up() -> None:
    assert made_up(MADE_UP)
    assert all(made_up(str(uuid.uuid4())) for _ in range(100))


@pytest.mark.parametrize("place", [MEMORY, STORAGE])
@pytest.mark.parametrize(("server", "seconds"), [("a", SILENT), (MADE_UP, MADE_UP_SECONDS)])
def test_what_is_of_a_silent_server_ends(place: Place, server: str, seconds: float) -> None:
    liveness = Liveness(SILENT)
    liveness.reported(server, 1, NOW)
    liveness.reported(server, 1, NOW - 50.0)
    assert liveness.gone(of(server, place), NOW + seconds - 1.0) is None
    assert liveness.gone(of(server, place), NOW + seconds) == "silent"


def test_a_shorter_setting_holds_for_ids_made_up_too() -> None:
    liveness = Liveness(5.0)
    liveness.reported(MADE_UP, 1, NOW)
    assert liveness.gone(of(MADE_UP, MEMORY), NOW + 5.0) == "silent"


def test_silence_counts_from_when_the_clock_was_set_back() -> None:
    liveness = Liveness(SILENT)
    liveness.beat("a", NOW + SILENT)
    liveness.look(NOW)
    assert liveness.gone(MEMORY, NOW + HEARTBEAT_SECONDS - 1.0) is None
    assert liveness.gone(MEMORY, NOW + HEARTBEAT_SECONDS) == "silent"


@pytest.mark.parametrize(("seconds", "silent"), [(HEARTBEAT_SECONDS, "silent"), (SILENT, None)])
def test_time_in_which_nobody_looked_for_long_is_no_silence(seconds: float, silent: str | None) -> None:
    liveness = Liveness(SILENT)
    liveness.reported("a", 1, NOW)
    liveness.missed(seconds)
    liveness.look(NOW + SILENT)
    assert liveness.gone(MEMORY, NOW + SILENT) == silent
    assert liveness.gone(MEMORY, NOW + 2 * SILENT) == "silent"


def test_pools_stay() -> None:
    assert Liveness(SILENT).gone(POOL, NOW + 10 * SILENT) is None


@pytest.mark.parametrize("server", ["a", MADE_UP])
def test_an_idle_server_that_sends_heartbeats_stays(server: str) -> None:
    liveness = Liveness(SILENT)
    liveness.reported(server, 1, NOW)
    for second in range(0, 8000, 5):
        liveness.beat(server, NOW + second)
        assert liveness.gone(of(server, MEMORY), NOW + second + 5.0) is None
        assert liveness.gone(of(server, STORAGE), NOW + second + 5.0) is None


def test_without_its_heartbeats_the_memory_ends_and_the_storage_waits_for_the_server() -> None:
    liveness = Liveness(SILENT)
    liveness.reported("a", 1, NOW)
    liveness.beat("a", NOW)
    assert liveness.beats("a")
    assert liveness.gone(MEMORY, NOW + HEARTBEAT_SECONDS) == "silent"
    assert liveness.gone(STORAGE, NOW + HEARTBEAT_SECONDS) is None
    assert liveness.gone(STORAGE, NOW + SILENT) == "silent"


def test_storage_of_an_id_made_up_ends_with_its_memory() -> None:
    liveness = Liveness(SILENT)
    liveness.beat(MADE_UP, NOW)
    assert liveness.gone(of(MADE_UP, STORAGE), NOW + HEARTBEAT_SECONDS) == "silent"


def test_who_leaves_is_gone_when_its_last_report_has_come() -> None:
    liveness = Liveness(SILENT)
    liveness.leaves("a", NOW)
    assert len(liveness) == 0
    liveness.beat("a", NOW)
    liveness.reported("a", 1, NOW + 2.0)
    assert liveness.beats("a")
    liveness.leaves("a", NOW + 3.0)
    assert not liveness.beats("a")
    liveness.reported("a", 1, NOW + 4.0)
    assert liveness.gone(MEMORY, NOW + 4.0 + LEAVING_SECONDS - 1.0) is None
    assert liveness.gone(MEMORY, NOW + 4.0 + LEAVING_SECONDS) == "removed"
    liveness.reported("a", 2, NOW + 5.0)
    assert liveness.gone(MEMORY, NOW + 5.0 + LEAVING_SECONDS) is None


def test_servers_that_nothing_is_known_of_any_more_are_forgotten() -> None:
    liveness = Liveness(SILENT)
    for server in ("kept", "lately", "gone"):
        liveness.beat(server, NOW + (HEARTBEAT_SECONDS if server == "lately" else 0.0))
    liveness.keep({"kept"}, NOW + HEARTBEAT_SECONDS)
    assert [server for server in ("kept", "lately", "gone") if liveness.beats(server)] == ["kept", "lately"]


def test_most_servers_silent_at_once_may_be_cut_off_from_us() -> None:
    doubts: list[tuple[int, int]] = []
    liveness = Liveness(SILENT, lambda known, found: doubts.append((known, found)))
    servers = ["a", "b", "c"]
    for server in servers:
        liveness.beat(server, NOW)

    def gone(now: float) -> list[str]:
        liveness.look(now)
        return [server for server in servers if liveness.gone(of(server, MEMORY), now) is not None]

    silent = NOW + HEARTBEAT_SECONDS
    assert gone(silent - 1.0) == gone(silent) == gone(silent + CONFIRM_SECONDS - 1.0) == []
    assert doubts == [(3, 0)]
    assert gone(silent + CONFIRM_SECONDS) == gone(silent + CONFIRM_SECONDS + 1.0) == servers
    for server in servers:
        liveness.beat(server, silent + 100.0)
    assert gone(silent + 100.0) == []
    for server in ("a", "b"):
        liveness.beat(server, silent + 150.0)
    # One of three, while the others are heard.
    assert gone(silent + 100.0 + HEARTBEAT_SECONDS) == ["c"]
    assert doubts == [(3, 0)]
