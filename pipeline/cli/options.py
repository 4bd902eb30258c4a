"""Options that commands share, `--config` above all, and reading the settings it names."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec.structs import asdict

from pipeline.cli.logs import LOG_LEVELS
from pipeline.settings.loading import (
    CONFIG_VARIABLE,
    LOG_LEVEL_VARIABLE,
    ConfigurationError,
    LoadedSettings,
    load,
)
from schemas.settings import Settings

DEFAULT_FILE = Path("kvlens.toml")

Command = TypeVar("Command", bound=Callable[..., Any])


def config_option(command: Command) -> Command:
    """Add `--config`, passed as `config: Path | None`."""
    return click.option(
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar=CONFIG_VARIABLE,
        metavar="FILE",
        help=f"Settings file; by default {DEFAULT_FILE} in the working directory, if it exists.",
    )(command)


def data_directory_option(default: str) -> Callable[[Command], Command]:
    """Add `--data-dir`, passed as `data_dir: Path`; defaults differ by command, so that fleets do not mix."""
    return click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(default),
        show_default=True,
        help="Directory for the embedded broker and store, their data and all logs.",
    )


def running_directory_option(command: Command) -> Command:
    """Add `--data-dir` of a running demo or up, passed as `data_dir: Path | None`."""
    return click.option(
        "--data-dir",
        type=click.Path(file_okay=False, exists=True, path_type=Path),
        help="Data directory of a running `kvlens demo` (.kvlens/demo) or `kvlens up` (.kvlens/up); gives "
        "addresses and engines.",
    )(command)


def log_level_option(command: Command) -> Command:
    """Add `--log-level`, passed as `log_level: str`."""
    return click.option(
        "--log-level",
        type=click.Choice(LOG_LEVELS, case_sensitive=False),
        envvar=LOG_LEVEL_VARIABLE,
        default="info",
        show_default=True,
        show_envvar=True,
        help="Least severe lines to log; debug adds those of the libraries.",
    )(command)


def settings_file(config: Path | None) -> Path | None:
    """Return the settings file: the one that was given or else the default one, if it exists."""
    return config or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)


def load_settings(config: Path | None, environment: Mapping[str, str] | None = None) -> LoadedSettings:
    """Read the file (see `settings_file`) and the environment; raises ConfigurationError."""
    document = None
    if (path := settings_file(config)) is not None:
        try:
            document = path.read_text("utf-8")
        except OSError as error:
            raise ConfigurationError(str(path), f"cannot read it: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigurationError(str(path), "not UTF-8 text") from error
    return load(
        document,
        str(path),
        os.environ if environment is None else environment,
        lambda name: Path(name).read_text("utf-8"),
    )


def load_running(config: Path | None, data_dir: Path | None) -> LoadedSettings:
    """Read the settings of the `kvlens demo` or `kvlens up` in `data_dir`; without one, those of the file.

    Raises ConfigurationError.
    """
    if data_dir is None:
        return load_settings(config)
    from pipeline.local.run_file import read_run_file

    return load_settings(*read_run_file(data_dir, config))


def require_engines(settings: Settings) -> None:
    """Raise ConfigurationError when the settings name no engine and no way to find one."""
    found = {name: value for name, value in asdict(settings.discovery).items() if isinstance(value, tuple)}
    reported = settings.lmcache.topic or settings.lmcache.port
    if not (settings.replicas or any(found.values()) or reported):
        *others, last = ["[[replicas]]", *(f"[[discovery.{name}]]" for name in found), "[lmcache]"]
        raise ConfigurationError(
            "settings", f"no engine to read; add {', '.join(others)} or {last}, or set KVLENS_REPLICAS"
        )


def require_tokens(settings: Settings, *sections: str) -> None:
    """Raise TokenMissing or TokenShort unless what listens as these sections say has the token it needs."""
    from connectors.process.login import check_token

    for section in sections:
        if section != "lmcache" or settings.lmcache.port:
            listening = getattr(settings, section)
            check_token(listening.host, listening.token, section=section)
