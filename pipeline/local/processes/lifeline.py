"""Runs a command that must not outlive its starter.

Usage: `python -m pipeline.local.processes.lifeline COMMAND ...`.

Standard input is the lifeline: the starter holds the other end of the pipe, the kernel closes it when the
starter ends, even by kill -9, and the command is then killed. A death signal on the command alone would not
do: Linux sends it when the *thread* that forked ends, and a supervisor may start its children from a thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> Callable[[], None] | None:
    """Return what the command's process calls before exec, to die with this one; on Linux only, else None."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def arm() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return arm


def main(command: list[str]) -> int:
    # Before the fork, so that no signal sent to us in between is lost on the command.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # close_fds=False: the command inherits the starter's pipe, on which the starter sees the command's end.
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent(), close_fds=False
    )
    signal.signal(signal.SIGTERM, lambda _number, _frame: child.terminate())

    def watch() -> None:
        while os.read(0, 4096):
            pass
        child.kill()

    threading.Thread(target=watch, daemon=True).start()
    code = child.wait()
    # A command ended by signal n is reported as a shell would.
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
