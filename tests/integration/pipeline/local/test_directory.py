from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.local.directory import DataDirectory, DirectoryInUse

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
