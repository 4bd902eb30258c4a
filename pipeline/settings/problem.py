"""A problem of settings that are each of the right type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from connectors.process.addresses import printable
from schemas.settings import SECRET_KEYS, Settings


@dataclass(frozen=True)
class SettingsProblem:
    """`text` names the path inside the document."""

    path: tuple[str, ...]
    """("replicas",) or (section, key), to look up where it came from."""
    text: str


_FILES = ("file", "directory")
"""Ends of the keys that name files, which may have any characters."""
_SHOWN_CHARACTERS = 80


def unprintable(settings: Settings) -> SettingsProblem | None:
    """Return the first text with a character that cannot be printed; files and secrets may have any."""
    for path, text in _texts(msgspec.to_builtins(settings), ()):
        named = tuple(part for part in path if isinstance(part, str))
        if text.isprintable() or named[-1].endswith(_FILES) or named in SECRET_KEYS:
            continue
        where = "$" + "".join(f".{part}" if isinstance(part, str) else f"[{part}]" for part in path)
        shown = printable(text)[:_SHOWN_CHARACTERS]
        origin = named[:1] if isinstance(path[1], int) else named[:2]
        return SettingsProblem(origin, f"a control character in '{shown}' - at `{where}`")
    return None


def _texts(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _texts(one, (*path, key))
    elif isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            yield from _texts(one, (*path, number))
