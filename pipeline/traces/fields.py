"""Values of a trace's fields; pure. Numbers may come as texts, as CSV and protobuf's JSON have them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from pipeline.traces.trace import BadField, HashId

_MAX_TOKENS = (1 << 32) - 1
"""As many as a change of residency can count."""
_NUMBER = re.compile(r"\d{1,20}(\.0*)?")
_MAX_DIGITS = 4000
"""Python makes no number of a text that has some more."""
_SEPARATORS = re.compile(r"[\s,;|]+")


def look_up(fields: Any, path: str) -> Any:
    """Return the value at a path such as `request.input_length` or `requests.0.t`; None if there is none.

    An object may itself be written as JSON text, as exports of databases do.
    """
    value = fields
    for step in path.split("."):
        if isinstance(value, str) and value[:1] == "{":
            value = _decoded(value)
        if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict):
            value = value.get(step)
        else:
            return None
    return value


def first_of(fields: Any, paths: Sequence[str]) -> tuple[str, Any]:
    """Return the first path that has a value, and the value; (first path, None) if none has one."""
    for path in paths:
        value = look_up(fields, path)
        if value is not None and value != "":
            return path, value
    return paths[0] if paths else "", None


def tokens(value: Any, name: str) -> int:
    """Return a number of tokens: 655, 655.0 or either as a text. Raises BadField."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = int(value.strip().partition(".")[0])
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None:
        raise BadField(f"no {name}")
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_TOKENS:
        raise BadField(f"{name} is {_shown(value)}, no number of tokens")
    return value


def hash_ids(value: Any, name: str, *, of_csv: bool = False) -> tuple[HashId, ...]:
    """Return the ids of a request's blocks: numbers, whole floats, or texts. Raises BadField.

    In CSV a cell holds them all: as a JSON array, or with blanks, commas, semicolons or bars between.
    """
    if of_csv and isinstance(value, str):
        value = _decoded(value) if value[:1] == "[" else [part for part in _SEPARATORS.split(value) if part]
    if not isinstance(value, list):
        raise BadField(f"{name} is {_shown(value)}, not a list of ids")
    if all(type(each) is int for each in value):
        return tuple(value)
    return tuple(_hash_id(each, f"{name}[{number}]") for number, each in enumerate(value))


def _hash_id(value: Any, name: str) -> HashId:
    if isinstance(value, str):
        text = value.strip().lower()
        if not text or len(text.split()) > 1:
            raise BadField(f"{name} is {_shown(value)}, no id")
        # The text of a number becomes that number; any other, such as 0012 or 00ff, stays a text.
        is_number = text.isdecimal() and (text[0] != "0" or text == "0") and len(text) <= _MAX_DIGITS
        return int(text) if is_number else text
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadField(f"{name} is {_shown(value)}, no id")
    return value


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _shown(value: Any) -> str:
    """Name a value without showing what a user may have written."""
    if isinstance(value, (bool, int, float)) or value is None:
        return str(value)[:24]
    return "a text" if isinstance(value, str) else "a list" if isinstance(value, list) else "an object"
