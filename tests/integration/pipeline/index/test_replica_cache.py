"""The example consumer of the events topic: what it finds is what the index says, block by block."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from packaging.requirements import Requirement

from connectors.kafka.topics import topic_name
from tests.support.checkout import ROOT
from tests.support.files_as_modules import module_of
from tests.support.index_service import IndexLog, IndexProcess
from tests.support.inputs.generated_logs import shared_log
from tests.support.only_these_packages import fill, named_by

PATH = ROOT / "deploy" / "examples" / "replica_cache.py"
REPLICAS = 4


def test_it_finds_what_the_index_knows(log: IndexLog, start: Callable[..., IndexProcess]) -> None:
    example = module_of(PATH)
    records = shared_log(3, replicas=REPLICAS, rounds=40, began=time.time() - 600)
    log.produce(records, applied=True)
    index = start()
    kafka = log.settings.kafka
    caches = asyncio.run(example.read(kafka.bootstrap_servers, topic_name(kafka, "events")))
    held = {replica: {block.hex() for _, block in cache} for (replica, _), cache in caches.items() if cache}
    blocks = sorted(set().union(*held.values()))
    assert len(blocks) > 100
    status, answer = index.ask("query_by_hash", {"model_name": "m", "prompts": [[one] for one in blocks]})
    assert status == 200
    known: dict[str, set[str]] = {}
    for block, each in zip(blocks, answer["answers"], strict=True):
        for replica in each["instances"]:
            known.setdefault(replica, set()).add(block)
    assert known == held
    _, answer = index.ask("replicas")
    assert {one["replica"]: one["blocks"]["gpu"] for one in answer["replicas"]} == {
        replica: len(cache) for (replica, _), cache in caches.items()
    }


def test_it_runs_with_exactly_what_it_names(log: IndexLog, tmp_path: Path) -> None:
    log.produce(shared_log(3, replicas=REPLICAS, rounds=5, began=time.time() - 600), compression="zstd")
    kafka = log.settings.kafka
    arguments = (kafka.bootstrap_servers, topic_name(kafka, "events"))
    named = named_by(PATH)
    ended = run_with(tmp_path / "all", named, arguments)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.count(" blocks\n") == REPLICAS
    lacking = [one for one in named if one.name != "cramjam"]
    ended = run_with(tmp_path / "fewer", lacking, arguments)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.count("\n") == 1
    assert "needs cramjam" in ended.stderr


def run_with(
    folder: Path, named: list[Requirement], arguments: tuple[str, ...]
) -> subprocess.CompletedProcess[str]:
    """Run the example where only these packages are."""
    folder.mkdir()
    fill(folder, named)
    program = "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); sys.argv.pop(0); "
    program += "runpy.run_path(sys.argv[0], run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(folder), str(PATH), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
