"""Runs pytest, and leaves nothing behind: no process of its tests, no temporary directory, however it ends.

    python -m tests.support.suite.run ARGUMENTS OF PYTEST

Everything that pytest starts, at whatever depth and in whatever session, is a descendant of this process,
because orphans become its children (`PR_SET_CHILD_SUBREAPER` of prctl(2)). When pytest has ended, by
itself, by Ctrl-C or by a signal, what is left of them is killed, and the directory in which all made their
temporary files goes. Orphans of a process of a parallel run are killed as soon as that one is dead. Only a
SIGKILL of this process itself is out of its reach: pytest then gets SIGTERM.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
GRACE_SECONDS = 20.0
"""From Ctrl-C, or another signal, until pytest is killed: fixtures stop brokers and stores meanwhile."""
LOOK_SECONDS = 0.5
CHILDREN = Path("/proc/thread-self/children")
END_SECONDS = 20.0
RUN_BY = "TEST_PROCESS"
"""In the environment of what a test starts: the id of the process that runs it."""
ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def run_by_this_process() -> None:
    """Write into what tests of this process start who runs them."""
    os.environ[RUN_BY] = str(os.getpid())


def parents() -> dict[int, int]:
    """Return the parent of each process that lives."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            # The name of the program, in brackets, may hold anything.
            state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state not in "ZX":
                found[int(entry.name)] = int(parent)
    return found


def below(roots: set[int], parent_of: Mapping[int, int]) -> set[int]:
    """Return all descendants of processes."""
    found: set[int] = set()
    while more := {one for one, parent in parent_of.items() if parent in found | roots} - found:
        found |= more
    return found


def orphaned(
    parent_of: Mapping[int, int], here: int, pytest: int, run_by: Callable[[int], int | None]
) -> set[int]:
    """Return what a dead process of the run had started, with all below it."""
    adopted = {one for one, parent in parent_of.items() if parent == here and one != pytest}
    roots = {one for one in adopted if (by := run_by(one)) is not None and by not in parent_of}
    return roots | below(roots, parent_of)


def has_adopted(pytest: int) -> bool:
    """Tell whether orphans have become children of this process: only then is all of /proc of interest."""
    try:
        return CHILDREN.read_text().split() != [str(pytest)]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return True


def told_run_by(process: int) -> int | None:
    """Return which process of the run started one, as its environment says."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
            name, _, value = line.partition(b"=")
            if name == RUN_BY.encode() and value.isdigit():
                return int(value)
    return None


def kill(processes: set[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def ended() -> Iterator[tuple[int, int]]:
    """Yield id and status of children that have ended, the adopted ones too."""
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            yield found


def prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def begun(arguments: Sequence[str], directory: Path, usual: set[signal.Signals]) -> int:
    """Start pytest with a place for its temporary files; return its id."""

    def child() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)

    command = [sys.executable, "-m", "pytest", f"--basetemp={directory / 't'}", *arguments]
    return subprocess.Popen(command, env={**os.environ, "TMPDIR": str(directory)}, preexec_fn=child).pid


def watched(pytest: int) -> int:
    """Return how pytest ended: its exit code, or 128 and the signal."""
    deadline = None
    while True:
        came = signal.sigtimedwait({signal.SIGCHLD, *ENDING}, LOOK_SECONDS)
        codes = dict(ended())
        if pytest in codes:
            code = os.waitstatus_to_exitcode(codes[pytest])
            return code if code >= 0 else 128 - code
        if came and came.si_signo in ENDING:
            deadline = deadline or time.monotonic() + GRACE_SECONDS
            # A terminal sends SIGINT to all; twice would cut off what is being cleaned up.
            if came.si_signo != signal.SIGINT:
                os.kill(pytest, signal.SIGINT)
        if deadline and time.monotonic() > deadline:
            kill({pytest})
        if has_adopted(pytest):
            kill(orphaned(parents(), os.getpid(), pytest, told_run_by))


def alone() -> None:
    """Kill all that is left below this process, also what is being started meanwhile."""
    deadline = time.monotonic() + END_SECONDS
    while left := below({os.getpid()}, parents()):
        kill(left)
        dict(ended())
        if time.monotonic() > deadline:
            sys.stderr.write(f"these do not end by SIGKILL: {sorted(left)}\n")
            return
        time.sleep(0.02)


def main(arguments: Sequence[str]) -> int:
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Whoever started this is gone: then this ends, too.
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *ENDING})
    directory = Path(tempfile.mkdtemp(prefix="kvlens-tests-"))
    try:
        return watched(begun(arguments, directory, usual))
    finally:
        alone()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
