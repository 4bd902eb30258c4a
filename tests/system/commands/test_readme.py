"""The README's shell blocks, pasted one after the other, work as shown, but for addresses and ports."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.command_lines import FENCE, SHELL
from tests.support.processes import environment

README = (ROOT / "README.md").read_text("utf-8")
SECTIONS = {
    text.partition("\n")[0]: text
    for text in re.split(r"^## ", README, flags=re.M)
    if any(language in SHELL for language, _ in FENCE.findall(text))
}
ELSEWHERE = ("vllm serve ", "python -m sglang.", "docker build ")
"""What takes a GPU, or a cluster: tests/fleet runs that one."""
READY = {"make demo": "; Ctrl-C stops it", ".venv/bin/kvlens up": "running; Ctrl-C stops it"}
"""What runs until Ctrl-C, and the words by which it says that it does."""


def as_in_a_terminal() -> dict[str, str]:
    """Return the environment without what the `make` that runs these tests says to those it starts."""
    of_make = ("ARGS", "JOBS", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS")
    return {name: value for name, value in environment().items() if name not in of_make}


class Terminal:
    """A directory like a checkout of its own, in which commands are pasted."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._running: tuple[subprocess.Popen[bytes], Path] | None = None
        for name in (".venv", "Makefile", "deploy", "pipeline", "pyproject.toml", "schemas", "tests"):
            (directory / name).symlink_to(ROOT / name)

    def paste(self, block: str) -> str:
        """Run a block like a shell that stops at the first failure; return what it prints."""
        for command, words in READY.items():
            if block.startswith(command):
                self._start(block, words)
                return ""
        done = subprocess.run(
            ["bash", "-e", "-c", block],
            cwd=self.directory,
            env=as_in_a_terminal(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=150,
        )
        # The doctor's code is its verdict.
        assert done.returncode == 0 or "kvlens doctor" in block, done.stdout
        return done.stdout

    def interrupt(self) -> None:
        """Press Ctrl-C: what runs says that it stops, and ends."""
        if self._running is None:
            return
        process, log = self._running
        self._running = None
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
        assert "stopping" in log.read_text().splitlines(), log.read_text()[-3000:]

    def _start(self, block: str, words: str) -> None:
        self.interrupt()
        log = self.directory / "terminal.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                shlex.split(block),
                cwd=self.directory,
                env=as_in_a_terminal(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # Tests that a shell runs in its background ignore it, and so does what they start.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        self._running = process, log
        deadline = time.monotonic() + 150
        while words not in log.read_text():
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.1)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path_factory.mktemp("checkout"))
    yield terminal
    terminal.interrupt()


@pytest.mark.night
@pytest.mark.parametrize("section", SECTIONS)
def test_blocks_work_when_they_are_pasted(
    terminal: Terminal, section: str, free_port: Callable[..., int]
) -> None:
    base, other = free_port(2), free_port()
    printed: list[str] = []
    for language, block in FENCE.findall(SECTIONS[section]):
        if language == "toml":
            (terminal.directory / "kvlens.toml").write_text(block)
        elif language in SHELL and not block.startswith(ELSEWHERE):
            here = block.replace("127.0.0.1:5557", f"127.0.0.1:{base}").replace(":5600", f":{other}")
            here = here.replace("kvlens simulate ", f"kvlens simulate --base-port {base} --metrics-port -1 ")
            printed.append(terminal.paste(here))
            if "kvlens doctor" in here:
                assert printed[-1].startswith("verdict: "), printed[-1]
        elif language == "text" and "kvlens whatif" in SECTIONS[section].partition(block)[0]:
            assert block in printed[-1]
    if section.startswith("Your engines"):
        analysed = printed[-1]
        assert re.search(r"^tcp:.*gpu|^\S+/0 +gpu", analysed, re.M), analysed
        assert re.search(r"^played [1-9]\d* batches$", analysed, re.M), analysed
    terminal.interrupt()


def test_only_what_takes_a_gpu_or_a_cluster_is_left_out() -> None:
    shown = [block for language, block in FENCE.findall(README) if language in SHELL]
    assert sum(block.startswith(ELSEWHERE) for block in shown) == 3
    assert all(any(block.startswith(command) for block in shown) for command in READY)
