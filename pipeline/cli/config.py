"""`kvlens config show`: the effective settings as TOML, each with where it came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from pipeline.cli.options import config_option, load_settings
from pipeline.configuration import DEFAULT, LoadedSettings, list_types, section_types
from schemas.settings import SECRET_KEYS

HIDDEN = "********"


@click.group
def config() -> None:
    """Show the effective settings."""


@config.command
@config_option
def show(config: Path | None) -> None:
    """Print the effective settings as TOML; secrets are hidden, a comment names where a value came from."""
    click.echo(as_toml(load_settings(config)), nl=False)


def as_toml(loaded: LoadedSettings) -> str:
    """The settings as the text of a kvlens.toml. Settings that are None are left out, as TOML has no null."""
    lines: list[str] = []
    for section in section_types():
        lines.append(f"[{section}]")
        repeated: list[str] = []
        for key, value in msgspec.structs.asdict(getattr(loaded.settings, section)).items():
            if (section, key) in SECRET_KEYS and value:
                value = HIDDEN
            if isinstance(value, tuple):
                repeated += _blocks(f"{section}.{key}", value, loaded.origin(section, key))
            else:
                lines.append(_line(key, value, loaded.origin(section, key)))
        lines += ["", *repeated]
    for name in list_types():
        lines += _blocks(name, getattr(loaded.settings, name), loaded.origin(name))
    return "\n".join(lines)


def _blocks(name: str, structs: Sequence[msgspec.Struct], origin: str) -> Iterator[str]:
    for struct in structs:
        yield f"[[{name}]]{_comment(origin)}"
        for key, value in msgspec.structs.asdict(struct).items():
            if value is not None:
                yield _line(key, value, DEFAULT)
        yield ""


def _line(key: str, value: Any, origin: str) -> str:
    # A JSON string is a TOML basic string but for DEL, which TOML wants escaped; numbers and booleans agree.
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"{key} = {text}{_comment(origin)}"


def _comment(origin: str) -> str:
    return "" if origin == DEFAULT else f"  # {origin}"
