from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pipeline.local.directory import DirectoryInUse
from pipeline.local.processes.child_process import ChildProcess, ProcessFailed

_SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
_DEAF = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)",
]
_STARTER = """
import sys, threading, time
from pathlib import Path
from pipeline.local.processes.child_process import ChildProcess
child = ChildProcess("sleeper", Path(sys.argv[1]), Path(sys.argv[1]) / "log")
def start():
    child.claim()
    child.spawn([sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"])
# From a thread that ends: its end must not take the child with it.
starting = threading.Thread(target=start)
starting.start()
starting.join()
time.sleep(0.5)
print(child.running, flush=True)
time.sleep(600)
"""


def _spawned(directory: Path, command: list[str]) -> ChildProcess:
    child = ChildProcess("sleeper", directory, directory / "log")
    child.claim()
    child.spawn(command)
    child.wait_ready(lambda: "up" in child.log.read_text(), 60, "nothing to do")
    return child


def test_stop_asks_first_and_frees_the_directory(tmp_path: Path) -> None:
    child = _spawned(tmp_path, _SLEEPER)
    stopping = time.monotonic()
    child.stop(120)
    assert time.monotonic() - stopping < 60
    assert not child.running
    _spawned(tmp_path, _SLEEPER).kill()


def test_what_it_writes_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        writes = f"open({str(tmp_path / 'written')!r}, 'w'); print('up', flush=True); time.sleep(600)"
        child = _spawned(tmp_path, [sys.executable, "-c", f"import time; {writes}"])
    finally:
        os.umask(before)
    try:
        assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("log", "written")} == {0o600}
    finally:
        child.kill()


def test_stop_is_bounded_for_a_process_that_ignores_it(tmp_path: Path) -> None:
    child = _spawned(tmp_path, _DEAF)
    stopping = time.monotonic()
    child.stop(0.3)
    assert 0.3 <= time.monotonic() - stopping < 60
    assert not child.running


def test_a_process_that_ends_while_starting_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    child = ChildProcess("thing", tmp_path, tmp_path / "log")
    child.claim()
    child.spawn([sys.executable, "-c", "print('the reason'); raise SystemExit(7)"])
    with pytest.raises(ProcessFailed) as failed:
        child.wait_ready(lambda: False, 60, "do this")
    text = str(failed.value)
    assert text.startswith("thing: ended with code 7 while starting; do this\n")
    assert text.endswith("the reason")


def test_a_process_that_ended_is_not_ready_though_somebody_answers_in_its_place(tmp_path: Path) -> None:
    child = ChildProcess("thing", tmp_path, tmp_path / "log")
    child.claim()
    child.spawn([sys.executable, "-c", "raise SystemExit(7)"])
    deadline = time.monotonic() + 60
    while child.running:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with pytest.raises(ProcessFailed, match="thing: ended with code 7 while starting; do this"):
        child.wait_ready(lambda: True, 60, "do this")


def test_a_child_outlives_the_thread_but_not_the_process_that_started_it(tmp_path: Path) -> None:
    starter = subprocess.Popen([sys.executable, "-c", _STARTER, str(tmp_path)], stdout=subprocess.PIPE)
    assert starter.stdout is not None
    try:
        assert starter.stdout.readline() == b"True\n"
        deadline = time.monotonic() + 120
        while not (written := (tmp_path / "log").read_text()).endswith("\n"):
            assert time.monotonic() < deadline, "the child does not say who it is"
            time.sleep(0.02)
        os.kill(int(written), 0)
    finally:
        starter.send_signal(signal.SIGKILL)
        starter.wait()
        starter.stdout.close()
    # The lock is held by the child too: to own the directory is to know that it is gone.
    successor = ChildProcess("next", tmp_path, tmp_path / "log")
    successor.claim()
    successor.kill()


def test_the_command_dies_with_a_killed_lifeline(tmp_path: Path) -> None:
    code = "import os, time; print('up', os.getpid(), flush=True); time.sleep(600)"
    child = _spawned(tmp_path, [sys.executable, "-c", code])
    command = int(child.log.read_text().split()[1])
    lifeline = os.getpgid(command)
    assert lifeline != command
    os.kill(lifeline, signal.SIGKILL)
    deadline = time.monotonic() + 60
    with suppress(FileNotFoundError, ProcessLookupError):  # it is gone
        while "\nState:\tZ" not in Path(f"/proc/{command}/status").read_text():
            assert time.monotonic() < deadline, "the command outlived its lifeline"
            time.sleep(0.02)
    child.kill()


def test_a_process_that_cannot_be_made_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", no_room)
    child = ChildProcess("thing", tmp_path, tmp_path / "log")
    before = len(os.listdir("/proc/self/fd"))
    child.claim()
    with pytest.raises(BlockingIOError):
        child.spawn(_SLEEPER)
    child.kill()
    assert len(os.listdir("/proc/self/fd")) == before


def test_two_processes_do_not_share_a_directory(tmp_path: Path) -> None:
    first = _spawned(tmp_path, _SLEEPER)
    with pytest.raises(DirectoryInUse):
        ChildProcess("second", tmp_path, tmp_path / "log2").claim()
    first.kill()


def test_a_process_that_works_is_waited_for_and_one_that_does_not_is_given_up(tmp_path: Path) -> None:
    """Patience of 2 s; the first is ready after it has used twice as much, however long that takes."""
    work = "import time\nwhile time.process_time() < 4: pass\nprint('up', flush=True)\ntime.sleep(600)"
    child = ChildProcess("busy", tmp_path / "busy", tmp_path / "busy" / "log")
    child.claim()
    child.spawn([sys.executable, "-c", work])
    child.wait_ready(lambda: "up" in child.log.read_text(), 2, "nothing to do")
    child.kill()
    child = ChildProcess("idle", tmp_path / "idle", tmp_path / "idle" / "log")
    child.claim()
    child.spawn(_SLEEPER)
    with pytest.raises(ProcessFailed, match="idle for the last 2 s"):
        child.wait_ready(lambda: False, 2, "nothing to do")
