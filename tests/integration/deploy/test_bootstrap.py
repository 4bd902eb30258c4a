"""The bootstrap's decisions: which Python is refused, when an environment is kept, repaired or made anew."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.checkout import ROOT
from tests.support.files_as_modules import module_of

BOOTSTRAP = ROOT / "deploy" / "bootstrap" / "bootstrap.py"


@pytest.fixture(scope="module")
def bootstrap() -> ModuleType:
    return module_of(BOOTSTRAP)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the real bootstrap, empty locks and no code: a whole run takes seconds."""
    root = tmp_path / "project"
    shutil.copytree(BOOTSTRAP.parent, root / "deploy" / "bootstrap")
    locks = root / "deploy" / "locks"
    locks.mkdir()
    (locks / "local.txt").write_text("# nothing to install\n")
    (locks / "dev.txt").write_text("# nothing to install for developers either\n")
    # A build back end in the tree: the real one is a package of the lock, which is empty here.
    (root / "backend.py").write_text(BACKEND)
    (root / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    return root


BACKEND = """
import zipfile

def build_editable(directory, config_settings=None, metadata_directory=None):
    name = "probe-1-py3-none-any.whl"
    with zipfile.ZipFile(directory + "/" + name, "w") as wheel:
        wheel.writestr("probe.py", "")
        wheel.writestr("probe-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: probe\\nVersion: 1\\n")
        tags = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        wheel.writestr("probe-1.dist-info/WHEEL", tags)
        wheel.writestr("probe-1.dist-info/RECORD", "")
    return name
"""


def run(root: Path, *lock: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "deploy/bootstrap/bootstrap.py", *lock],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("version", [(3, 10), (3, 11), (3, 14), (4, 0)])
def test_python_that_is_new_enough(bootstrap: ModuleType, version: tuple[int, int]) -> None:
    assert bootstrap.refusal(version) == ""


@pytest.mark.parametrize(("version", "named"), [((3, 9), "3.9"), ((3, 6), "3.6"), ((2, 7), "2.7")])
def test_older_python_gets_one_clear_line(
    bootstrap: ModuleType, version: tuple[int, int], named: str
) -> None:
    line = bootstrap.refusal(version)
    assert line == (
        f"kvlens needs Python 3.10 or newer, this is {named}: name a newer one, as `PYTHON=python3.12`"
    )


def test_oldest_python_is_the_one_pyproject_requires(bootstrap: ModuleType) -> None:
    oldest = ".".join(map(str, bootstrap.OLDEST))
    assert f'requires-python = ">={oldest}"' in (ROOT / "pyproject.toml").read_text()


def test_every_part_of_the_environment_changes_its_key(bootstrap: ModuleType) -> None:
    keys = {
        bootstrap.environment_key(lock, interpreter, place)
        for lock in (b"a==1", b"a==2")
        for interpreter in ("3.11.2", "3.11.7")
        for place in ("/one", "/two")
    }
    assert len(keys) == 8


def test_checked_in_installer_is_the_one_named(bootstrap: ModuleType) -> None:
    assert bootstrap.checked_wheel(bootstrap.PIP_WHEEL, bootstrap.PIP_WHEEL_SHA256) == bootstrap.PIP_WHEEL
    assert hashlib.sha256(bootstrap.PIP_WHEEL.read_bytes()).hexdigest() == bootstrap.PIP_WHEEL_SHA256


def test_damaged_or_missing_installer_is_refused(bootstrap: ModuleType, tmp_path: Path) -> None:
    damaged = tmp_path / "pip.whl"
    damaged.write_bytes(bootstrap.PIP_WHEEL.read_bytes()[:-1])
    with pytest.raises(bootstrap.BootstrapFailed, match="is damaged: its sha256 is"):
        bootstrap.checked_wheel(damaged, bootstrap.PIP_WHEEL_SHA256)
    with pytest.raises(bootstrap.BootstrapFailed, match="No such file"):
        bootstrap.checked_wheel(tmp_path / "absent.whl", bootstrap.PIP_WHEEL_SHA256)


@pytest.mark.parametrize("content", [None, "", "{half", "[]"])
def test_unreadable_stamp_is_none(bootstrap: ModuleType, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / bootstrap.STAMP).write_text(content)
    assert bootstrap.read_stamp(tmp_path) == {}


@pytest.mark.night
def test_environment_is_made_kept_refreshed_and_repaired(project: Path, bootstrap: ModuleType) -> None:
    venv = project / ".venv"
    stamp = venv / bootstrap.STAMP

    first = run(project)
    assert first.returncode == 0, first.stderr
    assert "making .venv" in first.stdout
    probe = subprocess.run([venv / "bin" / "python", "-c", "import probe"], check=False)
    assert probe.returncode == 0

    # A file of ours tells whether the environment is still the same one.
    witness = venv / "witness"
    witness.touch()
    stamped = stamp.read_bytes()
    again = run(project)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert witness.exists()

    # Another pyproject.toml: the project is installed again, the packages stay.
    (project / "pyproject.toml").open("a").write("# changed\n")
    changed = run(project)
    assert changed.returncode == 0, changed.stderr
    assert "making" not in changed.stdout
    assert "installing kvlens" in changed.stdout
    assert witness.exists()
    assert stamp.read_bytes() != stamped

    # Another lock: a package that left the lock must not stay behind.
    (project / "deploy" / "locks" / "dev.txt").write_text("# another nothing\n")
    relocked = run(project)
    assert relocked.returncode == 0, relocked.stderr
    assert "making .venv" in relocked.stdout
    assert not witness.exists()

    # Half-made: no stamp, and an interpreter that is gone.
    stamp.unlink()
    (venv / "bin" / "python").unlink()
    repaired = run(project)
    assert repaired.returncode == 0, repaired.stderr
    assert "making .venv" in repaired.stdout
    assert json.loads(stamp.read_text()).keys() == {"environment", "project"}


@pytest.mark.night
def test_developers_add_to_the_environment_of_the_demo_and_the_demo_takes_theirs(project: Path) -> None:
    witness = project / ".venv" / "witness"
    demo = run(project, "local")
    assert "installing deploy/locks/local.txt" in demo.stdout, demo.stderr
    witness.touch()

    developers = run(project)
    assert "making" not in developers.stdout
    assert "installing deploy/locks/dev.txt" in developers.stdout, developers.stderr
    again = run(project, "local")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert witness.exists()

    # Developers keep their tools when the lock of the demo changes, and get a new environment with their own.
    (project / "deploy" / "locks" / "local.txt").write_text("# another nothing\n")
    assert run(project).stdout == ""
    (project / "deploy" / "locks" / "dev.txt").write_text("# another nothing for developers\n")
    assert "making .venv" in run(project, "local").stdout
    assert not witness.exists()


def test_a_lock_that_does_not_exist_is_refused(project: Path) -> None:
    refused = run(project, "devs")
    assert (refused.returncode, refused.stderr) == (
        1,
        "set-up failed: expected the name of one lock: local or dev\n",
    )


def test_failed_set_up_says_why_and_leaves_no_stamp(project: Path, bootstrap: ModuleType) -> None:
    (project / "deploy" / "locks" / "dev.txt").write_text("./absent-1-py3-none-any.whl\n")
    failed = run(project)
    assert failed.returncode == 1
    assert "absent-1-py3-none-any.whl" in failed.stderr
    assert "set-up failed: pip ended with 1" in failed.stderr.splitlines()[-1]
    assert "Traceback" not in failed.stderr.splitlines()[-1]
    assert not (project / ".venv" / bootstrap.STAMP).exists()


def test_a_lock_is_split_into_the_large_packages_and_all_others(bootstrap: ModuleType) -> None:
    lock = (ROOT / "deploy" / "locks" / "local.txt").read_text()
    large, others = bootstrap.split(lock)
    assert sorted((large + others).splitlines()) == sorted(lock.splitlines())
    for part, named in ((large, bootstrap.LARGE), (others, ())):
        entries = [line for line in part.splitlines() if not line.startswith(" ")]
        assert {entry.partition("==")[0] for entry in entries} & set(bootstrap.LARGE) == set(named)
        assert part.splitlines()[0] in entries, "hashes stand with their entry"
    assert bootstrap.split("") == ("", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_set_up_that_hangs_says_so_and_ends_with_all_it_started(
    project: Path, bootstrap: ModuleType, number: int
) -> None:
    (project / "backend.py").write_text("import time\ntime.sleep(600)\n")
    with subprocess.Popen(
        [sys.executable, "deploy/bootstrap/bootstrap.py", "local"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that a shell runs in its background ignore it, and so does what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "packages: " in line:  # it lives
                break
        process.send_signal(number)
        _, error = process.communicate(timeout=120)
    assert (process.returncode, error) == (130, "set-up stopped; the next run starts it again\n")
    assert not (project / ".venv" / bootstrap.STAMP).exists()
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(project) in _read(path)]
    assert left == []


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # it has ended
        return ""
