"""The demo end to end on the real broker and store, and again on the same directory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkout import ROOT

SECONDS = 10
AGAIN_SECONDS = 20
"""Enough for more of everything, on a busy machine, too."""
SYSTEM_PROMPT_TOKENS = 256
SOURCES = {
    ("vllm-0.14-cpu", 0),
    ("vllm-0.24-dp2", 0),
    ("vllm-0.24-dp2", 1),
    ("vllm-0.24-small", 0),
    ("vllm-0.24-small", 1),
    ("vllm-0.33-cpu", 0),
    ("vllm-0.33-decode", 0),
    ("vllm-0.33-hybrid", 0),
    ("vllm-0.33-prefill", 0),
}


def demo(directory: Path, seconds: int, zone: str) -> dict[str, Any]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("KVLENS_")}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pipeline.cli.main", "demo"),
            *("--data-dir", str(directory), "--seconds", str(seconds), "--json"),
        ],
        cwd=ROOT,
        env={**known, "TZ": zone},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    told = done.stderr.splitlines()
    ready = next(line for line in told if line.startswith("ready after"))
    assert re.fullmatch(r"ready after .* s: open http://127.0.0.1:\d+/\?range=300; Ctrl-C stops it", ready)
    assert told[-1] == f"stopped; the next demo continues with the data in {directory}"
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def topics_of_a_demo_that_fills_tables(first: dict[str, Any]) -> dict[str, int]:
    """Check what a first demo says of itself; return how many records each topic has."""
    pools = {(pool["replica"], pool["dp_rank"], pool["medium"]): pool for pool in first["pools"]}
    assert {key[:2] for key in pools} == SOURCES
    for (replica, _, medium), pool in pools.items():
        assert pool["trust"] == "complete"
        assert pool["entries"] > 0
        if medium == "gpu":
            assert pool["entries"] <= pool["capacity_blocks"]
            if "small" in replica:
                assert pool["evicted_blocks"] > 0
                assert 0 < pool["mean_lifetime_seconds"] < 600
    tiered = {replica for replica, _, medium in pools if medium == "cpu"}
    assert tiered == {"vllm-0.14-cpu", "vllm-0.33-cpu", "vllm-0.33-prefill"}
    assert pools["vllm-0.33-hybrid", 0, "gpu"]["fine_blocks"] > 0
    for source in first["sources"]:
        assert (source["lost_batches"], source["undecodable_events"]) == (0, 0)
    assert set(first["rows"]) == {
        *("occupancy_10s", "flow_10s", "stream_health_10s", "engine_counters", "sources"),
    }
    assert all(first["rows"].values())
    assert first["rows"]["sources"] == len(SOURCES)
    # How fresh rows are on a machine of its own is measured by `make bench ARGS=freshness`.
    assert 0 < first["freshness_seconds"]["p50"] < 600
    # The fleet agent writes a base now and then only, and there is nothing to set aside.
    topics: dict[str, int] = {
        name: records for name, records in first["topics"].items() if "checkpoints.fleet" not in name
    }
    assert topics.pop("kvlens.set.aside.v1") == 0
    # These captures had no router in front of them whose choices anybody could post.
    assert topics.pop("kvlens.choices.v1") == 0
    assert all(topics.values())
    assert not any(first["restarts"].values())
    held = first["index"]["answer"]["instances"]
    assert {*held} <= {"vllm-0.14-cpu", "vllm-0.33-cpu"}
    assert max(match["longest_matched"] for match in held.values()) == SYSTEM_PROMPT_TOKENS
    return topics


def test_the_demo_fills_tables(tmp_path: Path):
    topics_of_a_demo_that_fills_tables(demo(tmp_path / "data", SECONDS, "America/New_York"))


@pytest.mark.night
def test_the_demo_fills_tables_and_continues_on_the_same_directory(tmp_path: Path):
    first = demo(tmp_path / "data", SECONDS, "America/New_York")
    topics = topics_of_a_demo_that_fills_tables(first)
    second = demo(tmp_path / "data", AGAIN_SECONDS, "Asia/Kolkata")
    assert second["events"] > first["events"]
    assert second["rows"]["sources"] == 2 * len(SOURCES)
    for table, rows in first["rows"].items():
        assert second["rows"][table] > rows
    for topic, end in topics.items():
        assert second["topics"][topic] > end
    assert {(pool["replica"], pool["dp_rank"]) for pool in second["pools"]} == SOURCES
    assert {pool["trust"] for pool in second["pools"]} == {"complete"}
