"""`kvlens up` on a played capture ends as the engine did, though its worker is killed meanwhile."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import clickhouse_connect

ROOT = Path(__file__).parents[3]
NAME = "vllm-0.16.0-array"
CAPTURE = ROOT / "tests" / "captures" / f"{NAME}.frames.msgpack.gz"
TRUTH = json.loads(gzip.decompress((ROOT / "tests" / "captures" / f"{NAME}.truth.json.gz").read_bytes()))
QUERY = "SELECT blocks, entries, trust FROM kvlens.occupancy_10s FINAL ORDER BY window DESC LIMIT 1"


def start(directory: Path, *arguments: str) -> subprocess.Popen[bytes]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KVLENS_")}
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline.cli.main", *arguments],
        cwd=directory,
        env={**clean, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdout=(directory / f"{arguments[0]}.out").open("wb"),
        stderr=subprocess.STDOUT,
    )


def wait_for(file: Path, text: str, seconds: float = 90) -> str:
    deadline = time.monotonic() + seconds
    while text not in (said := file.read_text()):
        assert time.monotonic() < deadline, said
        time.sleep(0.2)
    return said


def worker_of(directory: Path) -> int:
    """The process that runs `kvlens work` in this directory, not the lifeline that started it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            here = os.readlink(process / "cwd") == str(directory)
            command = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if here and b"work" in command and b"pipeline.local.lifeline" not in command:
            found.append(int(process.name))
    assert len(found) == 1
    return found[0]


def test_a_capture_ends_as_the_engine_did_though_the_worker_was_killed(
    tmp_path: Path, free_port: Callable[[], int]
):
    tmp_path = tmp_path.resolve()
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    (tmp_path / "kvlens.toml").write_text(
        f'[[replicas]]\nid = "engine"\nmodel = "m"\nendpoint = "{endpoint}"\n'
    )
    up = start(tmp_path, "up")
    player = start(tmp_path, "play", str(CAPTURE), "--endpoint", endpoint, "--speed", "0.2")
    try:
        said = wait_for(tmp_path / "up.out", "running; Ctrl-C stops it")
        assert player.poll() is None
        os.kill(worker_of(tmp_path), signal.SIGKILL)
        wait_for(tmp_path / "up.out", "worker is running again")
        assert player.wait(60) == 0
        url = said.partition("clickhouse: ")[2].split()[0]
        expected = (*TRUTH["checkpoints"][-1][1:3], "complete")
        client = clickhouse_connect.get_client(dsn=url)
        deadline = time.monotonic() + 30
        while (rows := client.query(QUERY).result_rows) != [expected]:
            assert time.monotonic() < deadline, rows
            time.sleep(0.5)
        client.close()
        up.send_signal(signal.SIGTERM)
        assert up.wait(60) == 0
    finally:
        player.kill()
        up.kill()
        player.wait()
        up.wait()
