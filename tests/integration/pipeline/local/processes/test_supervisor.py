"""The supervisor: restarts with growing pauses, stops in reverse, on a clock and on real children."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.local.directory import DirectoryUnusable
from pipeline.local.processes.child_process import ChildProcess, ProcessFailed
from pipeline.local.processes.supervisor import LONGEST_PAUSE_SECONDS, STABLE_SECONDS, Supervisor


class Switch:
    """A service that is told when to die."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log
        self.running = False
        self.refuses: Exception | None = None
        self.ready = True

    def launch(self) -> None:
        if self.refuses:
            raise self.refuses
        self.log.append(f"start {self.name}")
        self.running = True

    def wait_ready(self) -> None:
        assert self.ready

    def stop(self, seconds: float) -> None:
        self.log.append(f"stop {self.name}")
        self.running = False


def test_parts_start_in_order_and_stop_before_what_they_write_to():
    log: list[str] = []
    supervisor = Supervisor(log.append, lambda: 0.0)
    supervisor.launch("store", Switch("store", log), storage=True)
    for name in "ab":
        supervisor.launch(name, Switch(name, log))
    supervisor.check()
    supervisor.stop()
    supervisor.stop()
    assert log[:3] == ["start store", "start a", "start b"]
    assert (sorted(log[3:5]), log[5:]) == (["stop a", "stop b"], ["stop store"])


def test_a_part_that_is_long_in_starting_keeps_no_other_from_coming_back():
    said: list[str] = []
    supervisor = Supervisor(said.append, lambda: 100.0)
    waits, other = Switch("waits", []), Switch("other", [])
    for service in (waits, other):
        supervisor.launch(service.name, service)
        service.running = False
    waits.ready = False
    supervisor._clock = lambda: 140.0
    for _ in range(3):
        supervisor.check()
    assert (waits.running, other.running) == (True, True)
    assert "other is running again" in said
    assert "waits is running again" not in said
    waits.ready = True
    supervisor.check()
    assert said[-1] == "waits is running again"


@pytest.mark.parametrize(
    "refuses",
    [
        ProcessFailed("a", "refuses", "wait"),
        DirectoryUnusable(Path("a"), "No space left on device"),
        OSError(errno.ENOSPC, "No space left on device"),
    ],
)
def test_pauses_grow_to_a_bound_and_a_part_that_ran_well_comes_back_at_once(refuses: Exception):
    now = 0.0
    said: list[str] = []
    switch = Switch("a", [])
    supervisor = Supervisor(said.append, lambda: now)
    supervisor.launch("a", switch)
    switch.running, switch.refuses = False, refuses
    starts = []
    for _ in range(4000):
        supervisor.check()
        if supervisor.restarts["a"] > len(starts):
            starts.append(now)
        now += 0.25
    pauses = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert starts[0] == 0.5
    assert pauses[:3] == [1.0, 2.0, 4.0]
    assert set(pauses[3:]) == {LONGEST_PAUSE_SECONDS}
    switch.refuses = None
    while not switch.running:
        supervisor.check()
        now += 0.25
    supervisor.check()
    assert said[-1] == "a is running again"
    now += STABLE_SECONDS
    switch.running = False
    supervisor.check()
    assert said[-1] == "a died; restarting it at once"
    supervisor.check()
    assert switch.running


class Child:
    """A real child process that writes its number to a file."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "pid"
        self.child = ChildProcess("child", directory / "own", directory / "child.log")

    @property
    def running(self) -> bool:
        return self.child.running

    @property
    def pid(self) -> int:
        return int(self.file.read_text())

    @property
    def ready(self) -> bool:
        return self.file.exists() and self.file.read_text().endswith("\n")

    def launch(self) -> None:
        self.file.unlink(missing_ok=True)
        self.child.claim()
        code = f"import os, time; open({str(self.file)!r}, 'w').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
        self.child.spawn([sys.executable, "-c", code])

    def wait_ready(self) -> None:
        self.child.wait_ready(lambda: self.ready, 240, "see log")

    def stop(self, seconds: float) -> None:
        self.child.stop(seconds)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_killed_child_is_restarted_and_stopped_in_the_end(tmp_path: Path):
    supervisor = Supervisor(lambda line: None)
    child = Child(tmp_path)
    try:
        supervisor.launch("child", child)
        child.wait_ready()
        first = child.pid
        os.kill(first, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while not (supervisor.restarts["child"] and child.ready) and time.monotonic() < deadline:
            supervisor.check()
            time.sleep(0.05)
        assert supervisor.restarts == {"child": 1}
        second = child.pid
        assert second != first
        assert alive(second)
    finally:
        supervisor.stop()
    assert not alive(first)
    assert not alive(second)


def test_children_die_with_a_supervisor_that_is_killed(tmp_path: Path):
    code = (
        "import sys, time; from pathlib import Path\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_supervisor import Child, Supervisor\n"
        "s = Supervisor(print)\n"
        f"child = Child(Path({str(tmp_path)!r})); s.launch('child', child); child.wait_ready()\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": "."}
    ) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"up\n"
        child = int((tmp_path / "pid").read_text())
        assert alive(child)
        starter.kill()
    deadline = time.monotonic() + 60
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)
