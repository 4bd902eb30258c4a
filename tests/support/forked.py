"""Commands of kvlens as processes that have its modules already: importing takes most of a short one's time.

A process of this module imports what a command line needs and forks. The child is a process like any other,
with arguments, environment, directory, output and exit code of its own. Not for commands that get signals.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile

import msgspec

from tests.support.patience import PATIENCE
from tests.support.processes import environment


class Asked(msgspec.Struct):
    """A command line, and what its process has."""

    arguments: list[str]
    cwd: str
    environment: dict[str, str]
    output: str
    errors: str
    seconds: int


def kvlens(*arguments: str, cwd: Path, seconds: float = PATIENCE, **more: str) -> tuple[int, str, str]:
    """Run a command to its end, for so long at most; return exit code, output and errors."""
    with TemporaryFile() as output, TemporaryFile() as errors:
        here = f"/proc/{os.getpid()}/fd"
        asked = Asked(
            [*arguments],
            str(cwd),
            environment(more),
            f"{here}/{output.fileno()}",
            f"{here}/{errors.fileno()}",
            int(seconds),
        )
        server = forking()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(msgspec.json.encode(asked) + b"\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        output.seek(0)
        errors.seek(0)
        return code, output.read().decode(), errors.read().decode()


@lru_cache
def forking() -> subprocess.Popen[bytes]:
    """The process that forks. It ends with this one, whose end of the pipe it reads."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked"],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def serve() -> list[str] | None:
    """Fork for every line: return the arguments in a child, and None when nobody asks any more."""
    from pipeline.cli.main import COMMANDS, module_of

    for line in sys.stdin:
        asked = msgspec.json.decode(line, type=Asked)
        if asked.arguments and asked.arguments[0] in COMMANDS:
            import_module(module_of(asked.arguments[0]))
        child = os.fork()
        if not child:
            become(asked)
            return asked.arguments
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
    return None


def become(asked: Asked) -> None:
    """Give this process what the command line is to have; a signal ends one that hangs."""
    signal.alarm(asked.seconds)
    os.environ.clear()
    os.environ.update(asked.environment)
    os.chdir(asked.cwd)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in ((1, asked.output), (2, asked.errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)


if __name__ == "__main__":
    wanted = serve()
    if wanted is not None:
        from pipeline.cli import failures
        from pipeline.cli.main import kvlens as command

        failures.run(command, wanted)
