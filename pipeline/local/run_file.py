"""The run file of a data directory: where its processes are, for commands that look at them from outside."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pipeline.errors import PipelineError
from pipeline.local.directory import FILE_RIGHTS

_FILE = "running.json"


class RunFile(msgspec.Struct, frozen=True):
    """How the processes of a stack got their settings."""

    config: str | None
    """The settings file, absolute; None when there is none."""
    environment: dict[str, str]
    """Variables with the addresses of the embedded broker and store."""
    on_purpose: dict[str, str] = {}
    """Source, as `replica/rank` -> why its problem is a deliberate part of a demo."""


class RunFileMissing(PipelineError):
    """The directory is not that of a demo or an `up`."""

    directory: Path

    def __str__(self) -> str:
        inner = sorted(found.parent for found in self.directory.glob(f"*/{_FILE}"))
        if inner:
            return (
                f"{self.directory} holds no {_FILE}; did you mean --data-dir {' or '.join(map(str, inner))}?"
            )
        return f"{self.directory} holds no {_FILE}; is it the --data-dir of `kvlens demo` or `kvlens up`?"


def write_run_file(
    directory: Path,
    config: Path | None,
    environment: Mapping[str, str],
    on_purpose: Mapping[str, str] | None = None,
) -> None:
    """Write where the started processes are. The file outlives them; the next start overwrites it."""
    path = str(config.resolve()) if config else None
    run_file = RunFile(path, dict(environment), dict(on_purpose or {}))
    file = directory / _FILE
    file.touch(FILE_RIGHTS)
    file.chmod(FILE_RIGHTS)
    file.write_bytes(msgspec.json.encode(run_file))


def read_run_file(directory: Path, config: Path | None = None) -> tuple[Path | None, dict[str, str]]:
    """Return the settings file (`config` if given) and the environment with which to read the settings.

    Raises RunFileMissing.
    """
    run_file = _read(directory)
    if config is None and run_file.config is not None:
        config = Path(run_file.config)
    return config, {**os.environ, **run_file.environment}


def read_on_purpose(directory: Path | None) -> dict[str, str]:
    """Return source -> why its problem is a deliberate part of a demo. Raises RunFileMissing."""
    return {} if directory is None else _read(directory).on_purpose


def _read(directory: Path) -> RunFile:
    try:
        return msgspec.json.decode((directory / _FILE).read_bytes(), type=RunFile)
    except (OSError, msgspec.DecodeError) as error:
        raise RunFileMissing(directory) from error
