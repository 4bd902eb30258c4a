"""The supervisor: restarts with growing pauses, stops in reverse, on a clock and on real children."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from pipeline.local.processes.child_process import ChildProcess, ProcessFailed
from pipeline.local.processes.supervisor import LONGEST_PAUSE_SECONDS, STABLE_SECONDS, Supervisor


class Switch:
    """A service that is told when to die."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log
        self.running = False
        self.refuses = False

    def start(self) -> None:
        if self.refuses:
            raise ProcessFailed(self.name, "refuses", "wait")
        self.log.append(f"start {self.name}")
        self.running = True

    def stop(self) -> None:
        self.log.append(f"stop {self.name}")
        self.running = False


def test_parts_start_in_order_and_stop_in_reverse():
    log: list[str] = []
    supervisor = Supervisor(log.append, lambda: 0.0)
    for name in "abc":
        supervisor.start(name, Switch(name, log))
    supervisor.check()
    supervisor.stop()
    supervisor.stop()
    assert log == ["start a", "start b", "start c", "stop c", "stop b", "stop a"]


def test_pauses_grow_to_a_bound_and_begin_anew_after_a_stable_time():
    now = 0.0
    said: list[str] = []
    switch = Switch("a", [])
    supervisor = Supervisor(said.append, lambda: now)
    supervisor.start("a", switch)
    switch.running, switch.refuses = False, True
    starts = []
    for _ in range(4000):
        supervisor.check()
        if supervisor.restarts["a"] > len(starts):
            starts.append(now)
        now += 0.25
    pauses = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert starts[0] == 0.5
    assert pauses[:6] == [1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE_SECONDS]
    assert set(pauses[6:]) == {LONGEST_PAUSE_SECONDS}
    switch.refuses = False
    while not switch.running:
        supervisor.check()
        now += 0.25
    assert said[-1] == "a is running again"
    now += STABLE_SECONDS
    switch.running = False
    supervisor.check()
    assert said[-1] == "a died; restarting it in 0.5 s"


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

    def start(self) -> None:
        self.file.unlink(missing_ok=True)
        self.child.claim()
        code = f"import os, time; open({str(self.file)!r}, 'w').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
        self.child.spawn([sys.executable, "-c", code])
        self.child.wait_ready(
            lambda: self.file.exists() and self.file.read_text().endswith("\n"), 20, "see log"
        )

    def stop(self) -> None:
        self.child.stop(5)


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
        supervisor.start("child", child)
        first = child.pid
        os.kill(first, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while supervisor.restarts["child"] == 0 and time.monotonic() < deadline:
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
        f"s.start('child', Child(Path({str(tmp_path)!r})))\n"
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
    deadline = time.monotonic() + 10
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)
