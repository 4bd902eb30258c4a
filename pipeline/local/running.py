"""What runs in a data directory, for commands that look at it from outside."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

_FILE = "running.json"


class Running(msgspec.Struct, frozen=True):
    """How the processes of a stack got their settings."""

    config: str | None
    """The settings file, absolute; None when there is none."""
    environment: dict[str, str]
    """Variables that name the embedded parts."""


class NothingRunning(Exception):
    """The directory is not that of a demo or an `up`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.directory = directory

    def __str__(self) -> str:
        return f"{self.directory} holds no {_FILE}; is it the --data-dir of `kvlens demo` or `kvlens up`?"


def write_running(directory: Path, config: Path | None, environment: Mapping[str, str]) -> None:
    """Say how to reach what was started; it stays when that ends, and is written again by the next start."""
    running = Running(str(config.resolve()) if config else None, dict(environment))
    (directory / _FILE).write_bytes(msgspec.json.encode(running))


def read_running(directory: Path, config: Path | None = None) -> tuple[Path | None, dict[str, str]]:
    """Return settings file (`config` if given) and environment to read its settings with.

    Raises NothingRunning.
    """
    try:
        running = msgspec.json.decode((directory / _FILE).read_bytes(), type=Running)
    except (OSError, msgspec.DecodeError) as error:
        raise NothingRunning(directory) from error
    if config is None and running.config is not None:
        config = Path(running.config)
    return config, {**os.environ, **running.environment}
