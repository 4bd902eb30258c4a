"""A run of tests that is interrupted leaves no process and no temporary directory behind."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.support.checkout import ROOT
from tests.support.patience import PATIENCE
from tests.support.suite.run import below, parents

pytestmark = pytest.mark.night

TESTS = (
    "tests/system/browser/test_page.py",
    "tests/system/commands/test_up.py",
    "tests/system/faults/test_worker_kill.py",
)
"""They start Chromium and `kvlens serve`; `kvlens up` with all below it; a broker, a store and workers."""
PYTEST, PROCESS = "-m pytest", "exec(eval(sys.stdin.readline()))"
CHROMIUM, UP, BROKER, WORKER = "--type=renderer", "pipeline.cli.main up", "kafka.Kafka", "worker_process.py"


def command_of(process: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


@dataclass
class Run:
    """A parallel run; all that it starts carries `mark` in its environment, unless it hides it."""

    process: subprocess.Popen[bytes]
    mark: str
    directory: Path
    log: Path

    def now(self) -> set[int]:
        """Ids of all processes of the run."""
        parent_of = parents()
        return below({self.process.pid}, parent_of) | {one for one in parent_of if self._is_marked(one)}

    def _is_marked(self, process: int) -> bool:
        with suppress(OSError):
            return self.mark.encode() in Path(f"/proc/{process}/environ").read_bytes()
        return False

    def wait(self, words: str, found: Callable[[set[int]], bool] = bool) -> set[int]:
        """Return the processes whose command has the words, when there are some, or when `found` says so."""
        deadline = time.monotonic() + PATIENCE
        while not found(those := {one for one in self.now() if words in command_of(one)}):
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            time.sleep(0.05)
        return those

    def left_nothing(self, before: set[int]) -> None:
        """Assert that it has ended with everything that it had started."""
        self.process.wait(PATIENCE)
        left = {one: command_of(one) for one in self.now() | (before & set(parents()))}
        assert left == {}
        assert [*self.directory.iterdir()] == []

    def close(self) -> None:
        for process in {*self.now(), self.process.pid}:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait(PATIENCE)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    # Chromium has its sockets there, whose paths must be short.
    directory, mark = Path(mkdtemp(prefix="run-", dir="/tmp")), f"run-{secrets.token_hex(8)}"
    command = [*(sys.executable, "-m", "tests.support.suite.run", "-n", "3", "--dist", "loadfile")]
    known = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    with (tmp_path / "run.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--no-loadscope-reorder", *TESTS],
            cwd=ROOT,
            env={**known, "TMPDIR": str(directory), "RUN_OF_TESTS": mark},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    running = Run(process, mark, directory, tmp_path / "run.log")
    yield running
    running.close()
    shutil.rmtree(directory)


def test_ctrl_c_while_processes_begin(run: Run) -> None:
    run.wait(PROCESS)
    before = run.now()
    os.killpg(run.process.pid, signal.SIGINT)
    run.left_nothing(before)


def test_ctrl_c_while_a_browser_shows_the_page(run: Run) -> None:
    run.wait(CHROMIUM)
    before = run.now()
    os.killpg(run.process.pid, signal.SIGINT)
    run.left_nothing(before)
    assert "KeyboardInterrupt" in run.log.read_text()


def test_sigterm_while_workers_work(run: Run) -> None:
    run.wait(WORKER)
    before = run.now()
    run.process.send_signal(signal.SIGTERM)
    run.left_nothing(before)


def test_pytest_itself_is_killed_while_everything_is_up(run: Run) -> None:
    run.wait(UP)
    run.wait(BROKER)
    before = run.now()
    for process in run.wait(PYTEST):
        if "tests.support.suite.run" not in command_of(process):
            os.kill(process, signal.SIGKILL)
    run.left_nothing(before)


def test_what_a_killed_process_of_the_run_had_started_ends_while_the_others_go_on(run: Run) -> None:
    up, *_ = run.wait(UP)
    parent_of = parents()
    (killed,) = [one for one in run.wait(PROCESS) if up in below({one}, parent_of)]
    orphans = below({killed}, parents())
    os.kill(killed, signal.SIGKILL)
    run.wait("", lambda those: not those & orphans)
    before = run.now()
    assert run.process.poll() is None
    os.killpg(run.process.pid, signal.SIGINT)
    run.left_nothing(before)
    assert "tests/system/commands/test_up.py::" in run.log.read_text()
