"""The bootstrap's decisions: which Python is refused, when an environment is kept, repaired or made anew."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
import stat
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.checkout import ROOT
from tests.support.files_as_modules import module_of
from tests.support.patience import PATIENCE
from tests.support.suite.night import first_by_day

BOOTSTRAP = ROOT / "deploy" / "bootstrap" / "bootstrap.py"


@pytest.fixture(scope="module")
def bootstrap() -> ModuleType:
    return module_of(BOOTSTRAP)


def wheel(directory: Path, name: str, number: str, files: dict[str, bytes]) -> str:
    """Write a wheel of these files into a directory; return its line of a lock."""
    about = f"{name}-{number}.dist-info"
    files = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n".encode(),
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": b"",
    }
    path = directory / f"{name}-{number}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for place, content in files.items():
            entry = zipfile.ZipInfo(place)
            entry.external_attr = (stat.S_IFREG | 0o755) << 16
            archive.writestr(entry, content)
    return f"{name}=={number} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A directory with the uv of this environment and a package, and their lines of a lock."""
    directory = tmp_path_factory.mktemp("links")
    number = version("uv")
    program = (Path(sys.executable).parent / "uv").read_bytes()
    uv = wheel(directory, "uv", number, {f"uv-{number}.data/scripts/uv": program})
    return directory, uv, wheel(directory, "locked", "1", {"locked.py": b""})


@pytest.fixture
def project(tmp_path: Path, links: tuple[Path, str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the real bootstrap, short locks and no code: a whole run takes seconds."""
    directory, uv, locked = links
    # uv is told of these by pip's settings only.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    root = tmp_path / "project"
    shutil.copytree(BOOTSTRAP.parent, root / "deploy" / "bootstrap")
    locks = root / "deploy" / "locks"
    locks.mkdir()
    (locks / "local.txt").write_text("# nothing to install\n")
    (locks / "dev.txt").write_text(uv + locked)
    # A build back end in the tree: the real one is a package of the lock, which is not in this one.
    (root / "backend.py").write_text(BACKEND)
    (root / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "probe"\nversion = "1"\n'
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
        timeout=PATIENCE,
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
    probe = subprocess.run([venv / "bin" / "python", "-c", "import locked, probe"], check=False)
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
    (project / "deploy" / "locks" / "dev.txt").open("a").write("# nothing more\n")
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
    (project / "deploy" / "locks" / "dev.txt").open("a").write("# nothing more for developers\n")
    assert "making .venv" in run(project, "local").stdout
    assert not witness.exists()


def test_a_lock_that_does_not_exist_is_refused(project: Path) -> None:
    refused = run(project, "devs")
    assert (refused.returncode, refused.stderr) == (
        1,
        "set-up failed: expected the name of one lock: local or dev\n",
    )


@pytest.mark.parametrize(
    ("lock", "named", "why"),
    [
        ("{uv}absent==1 --hash=sha256:{none}\n", "absent", "uv ended with 1: its last lines are above"),
        pytest.param(
            "uv=={number} --hash=sha256:{none}\n",
            "uv",
            "pip ended with 1: its last lines are above",
            marks=pytest.mark.night,
        ),
        ("{locked}", "", "deploy/locks/dev.txt does not name uv: run `make lock`"),
    ],
    ids=["a package is nowhere", "another uv", "no uv"],
)
def test_failed_set_up_says_why_and_leaves_no_stamp(
    project: Path, bootstrap: ModuleType, links: tuple[Path, str, str], lock: str, named: str, why: str
) -> None:
    _, uv, locked = links
    content = lock.format(uv=uv, locked=locked, number=version("uv"), none=64 * "0")
    (project / "deploy" / "locks" / "dev.txt").write_text(content)
    failed = run(project)
    assert failed.returncode == 1
    assert named in failed.stderr
    assert failed.stderr.splitlines()[-1] == f"set-up failed: {why}"
    assert not (project / ".venv" / bootstrap.STAMP).exists()


def test_a_lock_says_which_uv_installs_the_others(bootstrap: ModuleType) -> None:
    lock = (ROOT / "deploy" / "locks" / "dev.txt").read_text()
    first, *hashes = bootstrap.entry(lock, "uv").splitlines()
    assert first == f"uv=={version('uv')} \\"
    assert hashes
    assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", each) for each in hashes)
    assert hashes[-1][-1] != "\\"


def test_what_pip_is_told_of_indexes_and_networks_uv_is_told(bootstrap: ModuleType, tmp_path: Path) -> None:
    said = {
        "global.index-url": "https://user:word@old.example/simple",
        "install.index-url": "https://user:word@new.example/simple",
        "download.index-url": "https://never.example/simple",
        "global.extra-index-url": "https://one.example\nhttps://two.example",
        ":env:.find-links": f"{tmp_path}/absent {tmp_path} https://links.example/",
        ":env:.no-index": "yes",
        ":env:.no-cache-dir": "1",
        "global.trusted-host": "one.example two.example",
        "global.cert": "/of all/ca.pem",
        ":env:.cert": "/of this/ca.pem",
        "global.client-cert": "/me.pem",
        "global.proxy": "http://proxy.example:3128",
        ":env:.default-timeout": "180",
        "global.disable-pip-version-check": "1",
    }
    assert bootstrap.as_uv_understands(f"{name}={value!r}" for name, value in said.items()) == (
        ["--no-index", "--no-cache"],
        {
            "UV_DEFAULT_INDEX": "https://user:word@new.example/simple",
            "UV_INDEX": "https://one.example https://two.example",
            "UV_FIND_LINKS": f"{tmp_path},https://links.example/",
            "UV_INSECURE_HOST": "one.example two.example",
            "SSL_CERT_FILE": "/of this/ca.pem",
            "SSL_CLIENT_CERT": "/me.pem",
            "ALL_PROXY": "http://proxy.example:3128",
            "UV_HTTP_TIMEOUT": "180",
        },
    )
    assert bootstrap.as_uv_understands([]) == ([], {})


def test_without_a_home_to_write_into_nothing_is_kept(bootstrap: ModuleType, tmp_path: Path) -> None:
    assert bootstrap.can_keep({"HOME": str(tmp_path)})
    assert bootstrap.can_keep({"HOME": "/dev/null", "XDG_CACHE_HOME": str(tmp_path)})
    assert bootstrap.can_keep({"HOME": "/dev/null", "UV_CACHE_DIR": str(tmp_path / "kept")})
    assert not bootstrap.can_keep({"HOME": "/dev/null"})


@pytest.mark.parametrize("number", first_by_day([signal.SIGINT, signal.SIGTERM]))
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
            if re.search(r"\(\d+ s\)$", line):  # it lives
                break
        process.send_signal(number)
        _, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, error) == (130, "set-up stopped; the next run starts it again\n")
    assert not (project / ".venv" / bootstrap.STAMP).exists()
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(project) in _read(path)]
    assert left == []


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # it has ended
        return ""
