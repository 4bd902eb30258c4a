"""What a trace says of all its requests at once: an object before them, or around them; pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeline.traces.forms import BLOCK_SIZE, form_of
from pipeline.traces.rows import Row
from pipeline.traces.trace import BadField

_TIME_UNIT = ("time_unit", "timestamp_unit")
_WORDS = {
    **dict.fromkeys(("sec", "second", "seconds"), "s"),
    **dict.fromkeys(("millis", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("microsecond", "microseconds"), "us"),
    **dict.fromkeys(("nanosecond", "nanoseconds"), "ns"),
}


def unwrapped(row: Row) -> Iterator[Row]:
    """Yield the object; if it wraps a list of requests, its other fields and then each request."""
    inner = [
        name
        for name, value in row.fields.items()
        if isinstance(value, list) and value and all(isinstance(each, dict) for each in value)
    ]
    if form_of(row.fields) is not None or len(inner) != 1:
        yield row
        return
    (name,) = inner
    yield Row(row.where, {other: value for other, value in row.fields.items() if other != name})
    shown = name if name.isprintable() else "element"
    for number, each in enumerate(row.fields[name], 1):
        yield Row(f"{shown} {number}", each)


def is_header(fields: dict[str, Any]) -> bool:
    """Return whether an object states units, and is no request."""
    return form_of(fields) is None and any(name in fields for name in (*BLOCK_SIZE, *_TIME_UNIT))


def common_to(header: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a header that each request has as well, if it does not say otherwise."""
    return {name: header[name] for name in BLOCK_SIZE if name in header}


def time_unit(fields: dict[str, Any]) -> str | None:
    """Return the unit of time that a header names, None if none. Raises BadField for an unknown one."""
    for name in _TIME_UNIT:
        word = fields.get(name)
        if word is not None:
            unit = _WORDS.get(str(word).lower(), str(word).lower())
            if unit not in _WORDS.values():
                raise BadField(f"{name} is none of s, ms, us, ns")
            return unit
    return None
