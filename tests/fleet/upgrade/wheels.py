"""Two versions of kvlens to run side by side, each from its wheel: the last tag and the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fleet.real_parts import cache_directory
from tests.support.checkout import ROOT

_LOCK = "deploy/locks/runtime.txt"


class VersionMissing(Exception):
    """An older version cannot be had; the text says in one line what to do."""


def last_release() -> str:
    """Return the last tag of a release before this commit. Raises VersionMissing."""
    described = _git("describe", "--tags", "--match", "v[0-9]*", "--abbrev=0", "HEAD^")
    if described.returncode:
        raise VersionMissing(
            "no release has a tag here; nothing before the first one has tables that this reads"
        )
    return described.stdout.strip()


class Version:
    """A wheel, unpacked beside the packages of its lock."""

    def __init__(self, name: str, site: Path, python: Path) -> None:
        self.name = name
        self.command = (str(python), "-m", "pipeline.cli.main")
        self.environment = {"PYTHONPATH": str(site)}

    def __str__(self) -> str:
        return self.name


def released(revision: str) -> Version:
    """Return the version of a commit, built and unpacked once. Raises VersionMissing."""
    found = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if found.returncode:
        raise VersionMissing(f"no commit {revision} in this clone: fetch all of it, `git fetch --unshallow`")
    commit = found.stdout.strip()
    site = cache_directory(commit.encode())
    with TemporaryDirectory() as aside:
        tree = Path(aside)
        packed = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x"], cwd=tree, input=packed.stdout, check=True)
        if not site.exists():
            _unpack(_wheel(tree, tree / "dist"), site)
        return Version(revision, site, _packages(tree / _LOCK))


def of_the_checkout(directory: Path) -> Version:
    """Return the version that is being worked on."""
    site = directory / "site"
    _unpack(_wheel(ROOT, directory), site)
    return Version("this version", site, _packages(ROOT / _LOCK))


def _wheel(tree: Path, directory: Path) -> Path:
    build = (sys.executable, "-m", "hatchling", "build", "--target", "wheel")
    _run(*build, "--directory", str(directory), cwd=tree)
    (wheel,) = directory.glob("*.whl")
    return wheel


def _unpack(wheel: Path, site: Path) -> None:
    aside = site.with_name(f"{site.name}.{os.getpid()}")
    _pip(sys.executable, "install", "--no-deps", "--no-index", f"--target={aside}", str(wheel))
    aside.rename(site)


def _packages(lock: Path) -> Path:
    """Return the interpreter of an environment with the packages of a lock, made once."""
    directory = cache_directory(lock.read_bytes() + sys.version.encode())
    python = directory / "bin" / "python"
    done = directory / "done"
    if not done.exists():
        _run(sys.executable, "-m", "venv", "--clear", "--without-pip", str(directory), cwd=ROOT)
        _pip(str(python), "install", "--no-deps", "--require-hashes", "-r", str(lock))
        done.touch()
    return python


def _pip(python: str, *arguments: str) -> None:
    (pip,) = (ROOT / "deploy" / "bootstrap").glob("pip-*.whl")
    _run(python, str(pip / "pip"), *arguments, "--quiet", "--disable-pip-version-check", cwd=ROOT)


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def _run(*command: str, cwd: Path) -> None:
    done = subprocess.run(
        command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert not done.returncode, f"{' '.join(command)}: {done.stderr[-2000:]}"
