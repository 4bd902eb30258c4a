from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.worker.consumer.memberships import Memberships
from tests.support.checkout import ROOT

_WORKER = """
import sys, time
from pathlib import Path
from pipeline.worker.consumer.memberships import Memberships
memberships = Memberships(Path(sys.argv[1]))
memberships.note("g.replica", "member-0")
memberships.note("g.replica", "member-1")
memberships.note("g.fleet", "a longer name than before")
memberships.note("g.fleet", "member-2")
print("noted", flush=True)
time.sleep(600)
"""


def test_memberships_of_a_dead_process_are_found_once_and_those_of_living_ones_never(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    own = Memberships(directory)
    own.note("g.replica", "own")
    with subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(directory)], cwd=ROOT, stdout=subprocess.PIPE
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"noted\n"
        assert list(own.of_the_dead()) == []
        worker.kill()
    assert list(own.of_the_dead()) == [{"g.replica": "member-1", "g.fleet": "member-2"}]
    assert list(own.of_the_dead()) == []


def test_a_file_that_is_not_locked_yet_is_taken_for_none_of_a_dead_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, another, lock = Memberships(tmp_path), Memberships(tmp_path), fcntl.flock

    def looked_for_before(*of: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        assert list(another.of_the_dead()) == []
        lock(*of)

    monkeypatch.setattr(fcntl, "flock", looked_for_before)
    own.note("g.replica", "own")
    [kept] = tmp_path.glob("members-*.json")
    assert kept.read_text() == '{"g.replica":"own"}'


def test_what_could_not_be_done_is_found_again_and_what_is_forgotten_is_not(tmp_path: Path) -> None:
    (tmp_path / "members-dead.json").write_text('{"g.fleet": "dead"}')
    (tmp_path / "members-half.json").write_text('{"g.fle')
    memberships = Memberships(tmp_path)
    finding = memberships.of_the_dead()
    for members in finding:
        assert members == {"g.fleet": "dead"}
        finding.close()
    assert list(Memberships(tmp_path).of_the_dead()) == [{"g.fleet": "dead"}]
    memberships.note("g.fleet", "own")
    memberships.forget()
    assert list(tmp_path.iterdir()) == []


def test_without_a_directory_nothing_is_remembered_and_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    memberships = Memberships(tmp_path / "file" / "state")
    memberships.note("g.fleet", "own")
    assert list(memberships.of_the_dead()) == []
    memberships.forget()
