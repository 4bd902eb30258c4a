"""Make `.venv` from a lock with nothing but a Python interpreter: no pip, no ensurepip, no compiler.

The pip wheel beside this file is the only installer used, so that every machine takes one path. Where
packages come from is pip's ordinary configuration (environment, pip.conf); this file names no index.

    bootstrap.py          everything, developers' tools included
    bootstrap.py local    what kvlens needs on one machine, its embedded broker and store included

A stamp in the environment says what it was made from. An environment without a fitting stamp is half-made
or stale and is made anew; with a fitting one nothing is started and the network is left alone.
"""

# Read by every Python 3 up to the version check below: nothing newer than Python 3.6's syntax before `main`.

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

OLDEST = (3, 10)

HERE = Path(__file__).resolve().parent
PIP_WHEEL = HERE / "pip-26.3-py3-none-any.whl"
PIP_WHEEL_SHA256 = "f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13"

LOCKS = ("local", "dev")
"""Names of the locks that an environment is made from; each holds all of the one before it."""

STAMP = "kvlens-stamp.json"
LINES_KEPT_OF_A_FAILURE = 30
SECONDS_BETWEEN_LINES = 5.0


class BootstrapFailed(Exception):
    """The environment could not be made; the message says why and what to do, in words for the terminal."""


def refusal(version: "Sequence[int]") -> str:
    """Return why an interpreter of `version` cannot run kvlens, or an empty string if it can."""
    if tuple(version[:2]) >= OLDEST:
        return ""
    oldest, found = (".".join(map(str, numbers[:2])) for numbers in (OLDEST, version))
    return f"kvlens needs Python {oldest} or newer, this is {found}: name a newer one, as `PYTHON=python3.12`"


def environment_key(lock: bytes, interpreter: str, directory: str) -> str:
    """Digest of what the installed packages depend on: lock, interpreter, path of the environment.

    `interpreter` is its version and path. The path counts because an environment's scripts hold absolute
    paths.
    """
    digest = hashlib.sha256()
    for part in (lock, interpreter.encode(), directory.encode()):
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


def project_key(pyproject: bytes) -> str:
    """Digest of what the installed project (its metadata and its command) depends on."""
    return hashlib.sha256(pyproject).hexdigest()


def read_stamp(venv: Path) -> "dict[str, str]":
    """Return the stamp of the environment at `venv`; empty if there is none that can be read."""
    try:
        stamp = json.loads((venv / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(venv: Path, stamp: "dict[str, str]") -> None:
    """Write the stamp of `venv` in one step, so that a crash never leaves half a stamp."""
    half = venv / (STAMP + ".half")
    half.write_text(json.dumps(stamp, indent=1) + "\n", encoding="utf-8")
    os.replace(str(half), str(venv / STAMP))


def checked_wheel(wheel: Path, sha256: str) -> Path:
    """Return `wheel` if its content has this digest.

    Raises:
        BootstrapFailed: the file is missing or is another one.
    """
    try:
        found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    except OSError as error:
        raise BootstrapFailed(f"cannot read {wheel}: {error.strerror}") from error
    if found != sha256:
        raise BootstrapFailed(
            f"{wheel} is damaged: its sha256 is {found}, not {sha256}; check the file out again"
        )
    return wheel


def make_empty_environment(venv: Path) -> None:
    """Put an environment without any package in place of whatever is at `venv`.

    Raises:
        BootstrapFailed: this Python cannot make one.
    """
    if venv.is_symlink() or venv.is_file():
        venv.unlink()
    elif venv.exists():
        shutil.rmtree(str(venv))
    try:
        import venv as builder
    except ImportError as error:
        raise BootstrapFailed(
            "this Python has no `venv` module (a cut-down build): install the full python3 package"
        ) from error
    builder.EnvBuilder(with_pip=False, symlinks=os.name != "nt").create(str(venv))


def run_pip(python: Path, wheel: Path, arguments: "list[str]") -> None:
    """Run pip out of its wheel in the environment of `python`, printing one line a package.

    Raises:
        BootstrapFailed: pip ended with an error; its last lines have been printed.
    """
    # -I: a PYTHONPATH of the caller's would make packages seem installed that are not.
    command = [str(python), "-I", str(wheel / "pip"), "--disable-pip-version-check", "--no-input", *arguments]
    last_lines: deque[str] = deque(maxlen=LINES_KEPT_OF_A_FAILURE)
    packages = 0
    unpacked = threading.Event()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            last_lines.append(line)
            words = line.split()
            if words[:1] == ["Collecting"]:
                packages += 1
                say(f"  {packages:3d} {words[1]}")
            elif words[:2] == ["Installing", "collected"]:
                watch = threading.Thread(target=say_unpacked, args=(python, packages, unpacked), daemon=True)
                watch.start()
        unpacked.set()
    if pip.returncode:
        sys.stderr.write("".join(last_lines))
        raise BootstrapFailed(f"pip ended with {pip.returncode}: its last lines are above")


def say_unpacked(python: Path, packages: int, done: threading.Event) -> None:
    """Print how many packages the environment of `python` holds, every few seconds until `done`.

    pip says nothing while it unpacks, which is most of the time.
    """
    begun = time.monotonic()
    say("  unpacking")
    while not done.wait(SECONDS_BETWEEN_LINES):
        held = sum(1 for _ in python.parent.parent.glob("lib/python*/site-packages/*.dist-info"))
        say(f"  unpacking: {held} packages of {packages}, {time.monotonic() - begun:.0f} s")


def say(line: str) -> None:
    """Print one line of progress at once."""
    print(line, flush=True)  # noqa: T201 - runs before there is any logging to use


def main(wanted: "Sequence[str]") -> None:
    """Bring `.venv` into the state that a lock and pyproject.toml describe.

    `wanted` names the lock; without a name it is the last one. An environment with more than that stays as it
    is, and one with less is added to.

    Raises:
        BootstrapFailed: it cannot be reached from here.
    """
    if list(wanted) not in ([], *([name] for name in LOCKS)):
        raise BootstrapFailed("expected the name of one lock: {}".format(" or ".join(LOCKS)))
    name = wanted[0] if wanted else LOCKS[-1]
    root = HERE.parent.parent
    venv = root / ".venv"
    python = venv / "bin" / "python"
    locks = {each: root / "deploy" / "locks" / f"{each}.txt" for each in LOCKS}
    pyproject = root / "pyproject.toml"

    interpreter = f"{sys.version} {os.path.realpath(sys.executable)}"
    keys = [environment_key(locks[each].read_bytes(), interpreter, str(venv)) for each in LOCKS]
    project = project_key(pyproject.read_bytes())
    stamp = read_stamp(venv)
    environment = stamp.get("environment") if python.exists() else None
    enough = keys[LOCKS.index(name) :]
    if environment in enough and stamp.get("project") == project:
        return

    wheel = checked_wheel(PIP_WHEEL, PIP_WHEEL_SHA256)
    if environment not in enough:
        if environment not in keys:
            say("making {} (Python {}.{}.{})".format(venv.name, *sys.version_info[:3]))
            make_empty_environment(venv)
        (venv / STAMP).unlink(missing_ok=True)
        environment = enough[0]
        lock = locks[name]
        say(f"installing {lock.relative_to(root)}")
        # The lock is complete (every package has a line and hashes), so nothing is left to resolve. Python
        # compiles what it imports, which is far less than everything.
        options = ["--no-deps", "--no-compile", "--require-hashes"]
        run_pip(python, wheel, ["install", *options, "--requirement", str(lock)])
        write_stamp(venv, {"environment": environment})
    say("installing kvlens")
    # hatchling, the build back end, is in the lock: an isolated build would fetch it again, unhashed.
    run_pip(python, wheel, ["install", "--no-deps", "--no-build-isolation", "--editable", str(root)])
    write_stamp(venv, {"environment": environment, "project": project})


if __name__ == "__main__":
    REFUSAL = refusal(sys.version_info[:2])
    if REFUSAL:
        sys.exit(REFUSAL)
    try:
        main(sys.argv[1:])
    except BootstrapFailed as failure:
        sys.exit(f"set-up failed: {failure}")
    except KeyboardInterrupt:
        sys.exit("set-up stopped; the next run starts it again")
