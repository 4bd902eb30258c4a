"""Make `.venv` from a lock with nothing but a Python interpreter: no pip, no ensurepip, no compiler.

The pip wheel beside this file fetches uv, and uv everything else, so that every machine takes one path. Where
packages come from is pip's ordinary configuration (environment, pip.conf); this file names no index.

    bootstrap.py          everything, developers' tools included
    bootstrap.py local    what kvlens needs on one machine, its embedded broker and store included

A stamp in the environment says what it was made from. An environment without a fitting stamp is half-made
or stale and is made anew; with a fitting one nothing is started and the network is left alone.
"""

# Read by every Python 3 up to the version check below: nothing newer than Python 3.6's syntax before `main`.

import ast
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

OLDEST = (3, 10)

HERE = Path(__file__).resolve().parent
PIP_WHEEL = HERE / "pip-26.3-py3-none-any.whl"
PIP_WHEEL_SHA256 = "f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13"

LOCKS = ("local", "dev")
"""Names of the locks that an environment is made from; each holds all of the one before it."""

INSTALLER = "uv"
"""It needs a quarter of pip's processor time, and uses all cores. The lock of developers names its hashes."""

UNDERSTOOD = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
"""pip's settings that say where packages come from and how to get there, and the variables that tell uv."""
BETWEEN = {"extra-index-url": " ", "find-links": ",", "trusted-host": " "}
"""What stands between several values of a setting for uv; for pip it is any white space."""
SECTIONS = ("global", "install", ":env:")
"""Of pip's settings, each of which goes before the ones to its left."""
FLAGS = {"no-index": "--no-index", "no-cache-dir": "--no-cache"}
TRUE = ("1", "true", "yes", "on")

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


def run_to_end(name: str, command: "list[str]", environment: "dict[str, str] | None" = None) -> None:
    """Run an installer, and say now and then what it is at; leave nothing that it started, however this ends.

    Raises:
        BootstrapFailed: it ended with an error; its last lines have been printed.
    """
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        # Ctrl-C reaches this program alone, which ends the installer and what that started at once.
        start_new_session=True,
    )
    assert process.stdout is not None
    lines: deque[str] = deque(maxlen=LINES_KEPT_OF_A_FAILURE)
    reader = threading.Thread(target=lines.extend, args=[process.stdout], daemon=True)
    reader.start()
    begun = told = time.monotonic()
    try:
        while process.poll() is None:
            told = say_how_far(lines[-1].strip() if lines else name, begun, told)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_BETWEEN_LOOKS)
    finally:
        say_nothing_more()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    reader.join(SECONDS_BETWEEN_LOOKS)
    if process.returncode:
        sys.stderr.write("".join(lines.copy()))
        raise BootstrapFailed(f"{name} ended with {process.returncode}: its last lines are above")


def say_how_far(doing: str, begun: float, told: float) -> float:
    """Say what an installer is at: at once on a terminal, else now and then; return when it was last said."""
    now = time.monotonic()
    line = f"  {doing} ({now - begun:.0f} s)"
    if sys.stdout.isatty():
        sys.stdout.write(ERASE + line)
        sys.stdout.flush()
    elif now - told >= SECONDS_BETWEEN_LINES:
        say(line)
        return now
    return told


def entry(lock: str, name: str) -> str:
    """Return what a lock says of one package: its version and its hashes.

    Raises:
        BootstrapFailed: the lock does not name it.
    """
    found = re.search(rf"^{name}==.*\n(\s.*\n)*", lock, re.MULTILINE)
    if found is None:
        raise BootstrapFailed(f"deploy/locks/{LOCKS[-1]}.txt does not name {name}: run `make lock`")
    return found.group()


def as_uv_understands(lines: "Iterable[str]") -> "tuple[list[str], dict[str, str]]":
    """Return arguments and variables for uv that say what lines of `pip config list` say.

    Index URLs may hold passwords, so they do not become arguments, which every user of the machine can read.
    """
    of_sections: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in lines:
        key, is_setting, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if is_setting and section in of_sections:
            of_sections[section][name] = str(ast.literal_eval(value))
    settings: dict[str, str] = {}
    for section in SECTIONS:
        settings.update(of_sections[section])
    arguments = [argument for name, argument in FLAGS.items() if settings.get(name, "").lower() in TRUE]
    # pip only warns of a directory that is not there.
    there = [each for each in settings.get("find-links", "").split() if "://" in each or os.path.exists(each)]
    settings["find-links"] = "\n".join(there)
    for name, between in BETWEEN.items():
        settings[name] = between.join(settings.get(name, "").split())
    return arguments, {UNDERSTOOD[name]: settings[name] for name in UNDERSTOOD if settings.get(name)}


def can_keep(environment: "Mapping[str, str]") -> bool:
    """Tell whether there is a place for what uv fetched; pip does without, where there is none."""
    place = environment.get("UV_CACHE_DIR")
    if not place:
        home = environment.get("HOME") or os.path.expanduser("~")
        place = os.path.join(environment.get("XDG_CACHE_HOME") or os.path.join(home, ".cache"), INSTALLER)
    try:
        os.makedirs(place, exist_ok=True)
    except OSError:
        return False
    return os.access(place, os.W_OK)


def install(venv: Path, wheel: Path, root: Path, lock: "Path | None") -> None:
    """Put the packages of a lock, or none, and the project at `root` into the environment.

    Raises:
        BootstrapFailed: an installer ended with an error.
    """
    python = str(venv / "bin" / "python")
    # -I: a PYTHONPATH of the caller's would make packages seem installed that are not.
    pip = [python, "-I", str(wheel / "pip"), "--disable-pip-version-check", "--no-input"]
    uv = [str(venv / "bin" / INSTALLER), "pip", "install", "--python", python, "--no-config", "--no-deps"]
    # Its own variables say nothing here but where it keeps what it fetched.
    said = os.environ.items()
    usual = {name: value for name, value in said if not name.startswith("UV_") or name == "UV_CACHE_DIR"}
    if not can_keep(usual):
        uv.append("--no-cache")
    if lock is not None:
        say(f"installing {lock.relative_to(root)}")
        own = venv / f"{INSTALLER}.txt"
        own.write_text(entry((lock.parent / f"{LOCKS[-1]}.txt").read_text(encoding="utf-8"), INSTALLER))
        # A lock is complete (every package has a line and hashes), so nothing is left to resolve.
        locked = ["--require-hashes", "--requirement"]
        run_to_end("pip", [*pip, "install", "--no-deps", "--no-compile", *locked, str(own)])
        told = subprocess.run([*pip, "config", "list"], stdout=subprocess.PIPE, encoding="utf-8", check=True)
        arguments, variables = as_uv_understands(told.stdout.splitlines())
        # As pip does: any index may have a package, and the system says whom to trust.
        arguments += ["--index-strategy", "unsafe-best-match", "--system-certs"]
        arguments = [each for each in arguments if each not in uv]
        run_to_end(INSTALLER, [*uv, *arguments, *locked, str(lock)], {**usual, **variables})
    say("installing kvlens")
    # hatchling, the build back end, is in the lock: an isolated build would fetch it again, unhashed.
    run_to_end(INSTALLER, [*uv, "--no-build-isolation", "--editable", str(root)], usual)


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
    whole = python.exists() and (venv / "bin" / INSTALLER).exists()
    environment = stamp.get("environment") if whole else None
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
