from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.local.directory import DataDirectory, DirectoryInUse, DirectoryUnusable
from pipeline.local.run_file import write_run_file

_OWNER = """
import sys, time
from pipeline.local.directory import DataDirectory
DataDirectory(sys.argv[1]).acquire()
print("owned", flush=True)
time.sleep(60)
"""


def test_parts_are_subdirectories_made_on_acquiring(tmp_path: Path) -> None:
    with DataDirectory(tmp_path / "a" / "b") as directory:
        assert directory.broker.is_dir()
        assert directory.store.is_dir()
        assert directory.logs.is_dir()
        assert {directory.broker.parent, directory.store.parent, directory.logs.parent} == {directory.path}


def test_second_owner_is_refused_and_told_who_owns(tmp_path: Path) -> None:
    with DataDirectory(tmp_path), pytest.raises(DirectoryInUse) as refused:
        DataDirectory(tmp_path).acquire()
    assert refused.value.pid == os.getpid()
    assert str(refused.value) == (
        f"directory {tmp_path} is in use by process {os.getpid()}; stop it or choose another --data-dir"
    )


def rights(path: Path) -> str:
    return oct(path.stat().st_mode & 0o777)


def test_nobody_but_the_owner_can_look_inside(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir(0o755)  # by an earlier version
    before = os.umask(0)
    try:
        with DataDirectory(tmp_path / "new") as directory, DataDirectory(tmp_path) as old:
            write_run_file(directory.path, None, {"KVLENS_KAFKA__SASL_PASSWORD": "hidden-word"})
            made = [directory.path, directory.broker, directory.store, directory.logs, old.logs]
            assert {rights(path) for path in made} == {"0o700"}
            files = [directory.path / "running.json", directory.path / "owner.lock"]
            assert {rights(path) for path in files} == {"0o600"}
    finally:
        os.umask(before)


def test_a_released_directory_can_be_owned_again(tmp_path: Path) -> None:
    for _ in range(2):
        with DataDirectory(tmp_path):
            pass


def test_no_lock_outlives_an_owner_killed_with_9(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, str(tmp_path)], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    try:
        assert owner.stdout.readline() == b"owned\n"
        with pytest.raises(DirectoryInUse) as refused:
            DataDirectory(tmp_path).acquire()
        assert refused.value.pid == owner.pid
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        owner.stdout.close()
    with DataDirectory(tmp_path):
        assert (tmp_path / "owner.lock").read_text() == f"{os.getpid()}\n"


def unusable(path: Path) -> str:
    with pytest.raises(DirectoryUnusable) as refused:
        DataDirectory(path).acquire()
    assert "\n" not in str(refused.value)
    assert "--data-dir" in str(refused.value)
    return refused.value.reason


def test_a_directory_that_cannot_be_has_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    assert unusable(file) == "File exists"
    assert unusable(file / "below") == "Not a directory"
    assert unusable(tmp_path / ("x" * 300)) == "File name too long"
    assert unusable(Path("/proc/kvlens/x")) == "No such file or directory"
    assert "circle" in unusable(circle / "x") or "symbolic" in unusable(circle / "x")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    for _ in range(2):  # the second time it is not in use by the first
        assert unusable(tmp_path / "full") == "No space left on device"
