"""`kvlens up` on a played capture ends as the engine did, though its worker is killed, and gives advice."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import clickhouse_connect
import pytest

from schemas.settings import ClickHouse
from tests.support.checkout import CAPTURES
from tests.support.inputs.captures import captured_truth
from tests.support.inputs.empty_tables import EmptyTables
from tests.support.processes import KVLENS, Started, started

NAME = "vllm-0.16.0-array"
CAPTURE = CAPTURES / f"{NAME}.frames.msgpack.gz"
TRUTH = captured_truth(NAME)
QUERY = "SELECT blocks, entries, trust FROM occupancy_10s FINAL ORDER BY window DESC LIMIT 1"


@pytest.fixture(params=["those of others", pytest.param("its own", marks=pytest.mark.night)])
def parts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClickHouse]:
    """The store of which it reads in its file, beside a broker; by default it starts both, as demos do."""
    if request.param == "its own":
        yield ClickHouse()
        return
    broker, tables = (
        request.getfixturevalue("broker"),
        EmptyTables(request.getfixturevalue("store"), request.getfixturevalue("shared")),
    )
    name = f"up_{secrets.token_hex(4)}"
    with tables.lent() as settings:
        store = settings.clickhouse
        (tmp_path / "kvlens.toml").write_text(
            f'[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\n'
            f'topic_prefix = "{name}"\ngroup = "{name}"\npartitions = 3\n'
            f'[clickhouse]\nurl = "{store.url}"\ndatabase = "{store.database}"\n'
        )
        yield store


def start(directory: Path, *arguments: str) -> Started:
    log = directory / f"{arguments[0]}.out"
    return started([*KVLENS, *arguments], log, cwd=directory, PYTHONUNBUFFERED="1")


def worker_of(directory: Path) -> int:
    """The process that runs `kvlens work` in this directory, not the lifeline that started it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            here = os.readlink(process / "cwd") == str(directory)
            command = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if here and b"work" in command and b"pipeline.local.processes.lifeline" not in command:
            found.append(int(process.name))
    assert len(found) == 1
    return found[0]


def blocks_held(index: str) -> int | None:
    """What the index says, None while it says nothing."""
    try:
        with urllib.request.urlopen(f"{index}replicas", timeout=60) as answer:
            return sum(sum(source["blocks"].values()) for source in json.load(answer)["replicas"])
    except OSError:
        return None


def test_a_capture_ends_as_the_engine_did_though_the_worker_was_killed_and_advice_is_given(
    parts: ClickHouse, tmp_path: Path, free_port: Callable[[], int]
):
    tmp_path = tmp_path.resolve()
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    with (tmp_path / "kvlens.toml").open("a") as file:
        file.write(f'[[replicas]]\nid = "engine"\nmodel = "m"\nendpoint = "{endpoint}"\n')
    up = start(tmp_path, "up")
    player = None
    try:
        up.wait_said("running; Ctrl-C stops it")
        player = start(tmp_path, "play", str(CAPTURE), "--endpoint", endpoint, "--speed", "0.1")
        player.wait_said("publishing on")
        time.sleep(3.0)  # of some 13 that it plays
        os.kill(worker_of(tmp_path), signal.SIGKILL)
        up.wait_said("worker is running again")
        assert player.process.wait(60) == 0
        url = up.said().partition("clickhouse: ")[2].split()[0]
        expected = (*TRUTH["checkpoints"][-1][1:3], "complete")
        client = clickhouse_connect.get_client(dsn=url, database=parts.database)
        deadline = time.monotonic() + 60
        while (rows := client.query(QUERY).result_rows) != [expected]:
            assert time.monotonic() < deadline, rows
            time.sleep(0.5)
        client.close()
        index = up.said().partition("index: ")[2].split()[0]
        while (held := blocks_held(index)) != expected[0]:
            assert time.monotonic() < deadline, held
            time.sleep(0.5)
        # It first asks half a minute after its start, which is about now.
        up.wait_said("Prefill you could avoid", seconds=120.0)
        assert re.search(r"^Data +1 of 1 complete +newest rows \d+ s old", up.said(), re.M), up.said()
        up.stop(60)
        data = tmp_path / ".kvlens"
        found = [path for path in (data, *data.rglob("*")) if not path.is_symlink()]
        others = [path for path in found if path.stat().st_mode & 0o077]
        assert others == [], "somebody else may look into them"
    finally:
        for process in (player, up):
            if process is not None:
                process.close()
