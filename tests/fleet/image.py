"""The image, built and run as Kubernetes would run it: read-only, unprivileged, with a tmpfs at /tmp."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.support.chart import pod_templates, rendered
from tests.support.checkout import ROOT
from tests.support.pod_security import options

PROGRAMS = ("buildah", "podman", "runc", "mmdebstrap")
VARIABLE = "KVLENS_PYTHON_IMAGE"
"""Base image to build on; without it one is made of Debian's packages."""
BASE = "localhost/kvlens-test-python:bookworm"
NAME = "localhost/kvlens-test:latest"
_OF_THE_HOST = ("/etc/ssl/certs", "/etc/pip.conf", "/etc/hosts", "/etc/resolv.conf")
"""How packages are reached from here."""
_OF_THIS_MACHINE = ("--network=host", "--ulimit=nofile=20000:20000", "--ulimit=nproc=4096:4096")
_COMPONENTS = {"connect": "connector", "work": "worker", "serve": "serve", "index": "index"}
"""Command -> part of the chart that runs it."""


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


@contextlib.contextmanager
def running(settings: Path, command: str, **environment: str) -> Iterator[Callable[[], tuple[int, float]]]:
    """Run a command in a container; gives what ends it with SIGTERM.

    That returns the exit code and how long it took.
    """
    name = f"kvlens-test-{secrets.token_hex(4)}"
    more = (
        *(f"--name={name}", f"--volume={settings}:/etc/kvlens.toml:ro"),
        *(f"--env={key}={value}" for key, value in environment.items()),
    )
    run = [*_command(_COMPONENTS[command], more=more), command, "--config", "/etc/kvlens.toml"]
    process = subprocess.Popen(run, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def end() -> tuple[int, float]:
        _run("podman", "kill", "--signal=TERM", name)
        began = time.monotonic()
        return process.wait(60), time.monotonic() - began

    try:
        deadline = time.monotonic() + 60
        while _said("podman", "inspect", "--format={{.State.Running}}", name) != "true":
            assert time.monotonic() < deadline, "the container did not start"
            time.sleep(0.05)
        yield end
    finally:
        if process.poll() is None:
            _ended("podman", "kill", "--signal=KILL", name)
            process.wait(60)


def _command(component: str = "connector", *, tmp: bool = True, more: Sequence[str] = ()) -> list[str]:
    restricted = options(pod_templates(rendered("fleet"))[component])
    may = [option for option in restricted if tmp or not option.startswith("--tmpfs=")]
    return ["podman", "--runtime=runc", "run", "--rm", *_OF_THIS_MACHINE, *may, *more, NAME]


def _ended(*command: str) -> int:
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode


def _said(*command: str) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _run(*command: str) -> None:
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert not done.returncode, f"{' '.join(command)}: {done.stderr[-2000:]}"
