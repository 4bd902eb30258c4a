"""Simulations as processes that have loaded what is compiled: that takes as long as many schedules.

A process of this module loads it, once for all tests of a process, and forks. The child simulates as
`python -m tests.simulation` does, or runs a program that replaces something of the product first.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import lru_cache
from tempfile import TemporaryFile

import msgspec

SECONDS = 110
"""A signal ends one that takes longer."""


class Asked(msgspec.Struct):
    """Arguments and program of a child, and where its output and errors go."""

    arguments: list[str]
    program: str
    output: str
    errors: str


def simulated(*arguments: str, program: str = "") -> subprocess.CompletedProcess[str]:
    """Run a simulation to its end."""
    with TemporaryFile() as output, TemporaryFile() as errors:
        here = f"/proc/{os.getpid()}/fd"
        asked = Asked([*arguments], program, f"{here}/{output.fileno()}", f"{here}/{errors.fileno()}")
        server = forking()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(msgspec.json.encode(asked) + b"\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(asked, code, output.read().decode(), errors.read().decode())


@lru_cache
def forking() -> subprocess.Popen[bytes]:
    """The process that forks. It ends with this one, whose end of the pipe it reads."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.simulation.forked"],
        # What sets of texts give first follows from one; numpy would start a thread, which no fork has.
        env=os.environ | {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def serve() -> None:
    """Fork for every line, until nobody asks any more."""
    from tests.simulation.__main__ import main
    from tests.support.suite.compiled import PARTS

    for part in PARTS:
        part()
    for line in sys.stdin:
        asked = msgspec.json.decode(line, type=Asked)
        child = os.fork()
        if not child:
            become(asked)
            if asked.program:
                exec(asked.program, {"__name__": "__main__"})
            sys.exit(main())
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def become(asked: Asked) -> None:
    """Give this process arguments and output of its own."""
    signal.alarm(SECONDS)
    sys.argv[1:] = asked.arguments
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in ((1, asked.output), (2, asked.errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)


if __name__ == "__main__":
    serve()
