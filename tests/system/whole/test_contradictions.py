"""Boards over fleets that run: the demo's story, replicas that prefill and decode, and a mixed fleet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from pipeline.local.demo.story import STORY, STORY_SECONDS
from tests.support.boards.checked import of_directory
from tests.support.processes import KVLENS, Started, started

pytestmark = pytest.mark.night

LONGEST = 900.0
ROUNDS = 3
CHAT = ("--steps-per-second", "10", "--system-prompt-tokens", "256", "--max-prompt-tokens", "1800")
FLEETS: dict[str, tuple[tuple[str, ...], ...]] = {
    "prefill and decode": (("--replicas", "4", "--prefill", "2", "--blocks", "300", "--model", "pd"),),
    "mixed": (
        ("--replicas", "3", "--prefill", "1", "--blocks", "300", "--model", "pd"),
        ("--replicas", "1", "--hybrid", "1", "--hybrid-blocks", "24", "--model", "hybrid", "--rate", "2"),
        (
            *("--replicas", "2", "--blocks", "200", "--cpu-blocks", "400", "--model", "tiered"),
            *("--at", "20:restart=0", "--at", "30:lose=1,25"),
        ),
    ),
}


def test_no_chapter_of_the_demo_contradicts_itself(tmp_path: Path) -> None:
    command = [*KVLENS, "demo", "--data-dir", "data"]
    with closing(started(command, tmp_path / "demo.out", cwd=tmp_path)) as demo:
        for chapter in STORY:
            demo.wait_said(chapter.line, seconds=LONGEST)
            assert of_directory(tmp_path / "data", STORY_SECONDS) == [], chapter.line
        # What the last one changes shows on the boards by then.
        time.sleep(30)
        for seconds in (60, STORY_SECONDS):
            assert of_directory(tmp_path / "data", seconds) == []


@pytest.mark.parametrize("fleet", FLEETS)
def test_no_fleet_contradicts_itself(fleet: str, tmp_path: Path, free_port: Callable[..., int]) -> None:
    with ExitStack() as running:
        configs = []
        for number, options in enumerate(FLEETS[fleet]):
            config, ports = tmp_path / f"{number}.toml", free_port(21)
            command = [
                *(*KVLENS, "simulate", *options, *CHAT, "--seed", str(number), "--write-config", str(config)),
                *("--base-port", str(ports), "--replay-base-port", str(ports + 10)),
                *("--metrics-port", str(ports + 20), "--wait-subscribers", "300"),
            ]
            log = tmp_path / f"{number}.out"
            running.enter_context(closing(started(command, log, cwd=tmp_path)))
            configs.append(config)
        while not all(config.exists() for config in configs):
            time.sleep(0.2)
        time.sleep(1)
        # Each fleet calls its replicas sim-0 and so on.
        told = [
            config.read_text().replace('id = "sim-', f'id = "fleet-{number}-')
            for number, config in enumerate(configs)
        ]
        (tmp_path / "kvlens.toml").write_text("\n".join(told))
        up = running.enter_context(closing(started([*KVLENS, "up"], tmp_path / "up.out", cwd=tmp_path)))
        up.wait_said("running; Ctrl-C stops it", seconds=LONGEST)
        for _ in range(ROUNDS):
            time.sleep(60)
            assert of_directory(tmp_path / ".kvlens" / "up", 120) == []


@contextmanager
def closing(process: Started) -> Iterator[Started]:
    try:
        yield process
    finally:
        try:
            process.end()
        finally:
            process.close()
