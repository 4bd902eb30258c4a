"""The image, built and run as Kubernetes would run it: read-only, unprivileged, with a tmpfs at /tmp."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.checkout import ROOT

PROGRAMS = ("buildah", "podman", "runc", "mmdebstrap")
VARIABLE = "KVLENS_PYTHON_IMAGE"
"""Base image to build on; without it one is made of Debian's packages."""
BASE = "localhost/kvlens-test-python:bookworm"
NAME = "localhost/kvlens-test:latest"
_OF_THE_HOST = ("/etc/ssl/certs", "/etc/pip.conf", "/etc/hosts", "/etc/resolv.conf")
"""How packages are reached from here."""
_RESTRICTED = (
    *("--network=host", "--read-only", "--read-only-tmpfs=false", "--user=65532:65532", "--cap-drop=ALL"),
    *("--security-opt=no-new-privileges", "--ulimit=nofile=20000:20000", "--ulimit=nproc=4096:4096"),
)
_TMP = "--tmpfs=/tmp:rw,size=64m,mode=1777"


def missing() -> str | None:
    """Return in one line what the machine lacks; None if images can be built and run."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"no {' and '.join(lacking)}: install Debian's packages" if lacking else None


def build(directory: Path) -> None:
    base = os.environ.get(VARIABLE)
    if base is None:
        base = BASE
        if _ended("podman", "image", "exists", BASE):
            packages = "python3,python3-venv,ca-certificates"
            root = directory / "root.tar"
            _run("mmdebstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(root))
            _run("podman", "import", "--quiet", str(root), BASE)
    volumes = [f"--volume={path}:{path}:ro" for path in _OF_THE_HOST if Path(path).exists()]
    _run(
        *("buildah", "build", "--layers", "--isolation=chroot", "--network=host", *volumes),
        *(f"--build-arg=PYTHON_IMAGE={base}", "--file=deploy/image/Dockerfile", f"--tag={NAME}", "."),
    )


def output(*arguments: str, tmp: bool = True, shell: bool = False) -> tuple[int, str]:
    """Run a container to its end; return its exit code and what it said."""
    done = subprocess.run(
        [*_command(tmp=tmp, more=("--entrypoint=/bin/sh",) if shell else ()), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout


def stopped(seconds: float, settings: Path, *arguments: str) -> tuple[int, float]:
    """Run a container, end it with SIGTERM after some seconds; return exit code and how long that took."""
    name = f"kvlens-test-{secrets.token_hex(4)}"
    more = (f"--name={name}", f"--volume={settings}:/etc/kvlens.toml:ro")
    command = [*_command(tmp=True, more=more), *arguments, "--config", "/etc/kvlens.toml"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while _ended("podman", "container", "exists", name):
        assert time.monotonic() < deadline, "the container did not start"
        time.sleep(0.1)
    time.sleep(seconds)
    began = time.monotonic()
    _run("podman", "kill", "--signal=TERM", name)
    return process.wait(60), time.monotonic() - began


def _command(*, tmp: bool, more: Sequence[str] = ()) -> list[str]:
    return [
        *("podman", "--runtime=runc", "run", "--rm", *_RESTRICTED, *([_TMP] if tmp else []), *more),
        NAME,
    ]


def _ended(*command: str) -> int:
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode


def _run(*command: str) -> None:
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert not done.returncode, f"{' '.join(command)}: {done.stderr[-2000:]}"
