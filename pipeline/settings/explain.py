"""Explains a bad setting in the terms of the file: its key, and the values it may have. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

_AT = re.compile(r"(.*) - at `(\$\S*)`", re.S)
_INSIDE = re.compile(r"`(\$[^`]*)`")
_TOKEN = re.compile(r"\.(\w+)|\[(\d+)\]")
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}
_LIMITS = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}


def explained(text: str, kind: Any) -> str:
    """Return the line for a problem that msgspec or a check of ours found in a document of type `kind`."""
    found = _AT.fullmatch(text)
    problem, path = (found[1], found[2]) if found else (text, "$")
    problem = _INSIDE.sub(lambda inside: place(inside[1]), problem)
    inner = _type_at(kind, path)
    where = place(path)
    for pattern, told in _PROBLEMS:
        if matched := re.fullmatch(pattern, problem, re.S):
            return told(matched, where, inner)
    return _after(where, problem)


def nearest(word: str, known: Iterable[str], shown: str = "`{}`") -> str:
    """Return the end of a sentence that offers the nearest known word; empty when none is near."""
    near = get_close_matches(word, list(known), n=1)
    return f"; did you mean {shown.format(near[0])}?" if near else ""


def place(path: str) -> str:
    """Return what `$.kafka.group` or `$.replicas[0].id` is called in the file; empty for the whole of it."""
    names: list[str] = []
    number: int | None = None
    keys: list[str] = []
    for name, index in _TOKEN.findall(path):
        if index:
            number = int(index) + 1
        elif number is None:
            names.append(name)
        else:
            keys.append(name)
    table = ".".join(names)
    if number is None:
        return f"[{table}]" if len(names) == 1 else table
    entry = f"[[{table}]] number {number}" if table else f"entry {number}"
    return f"`{'.'.join(keys)}` of {entry}" if keys else entry


def _after(where: str, problem: str) -> str:
    return f"{where}: {problem}" if where else problem


def _unknown_field(found: re.Match[str], where: str, kind: Any) -> str:
    name, known = found[1], _fields(kind)
    if where:
        return f"{where} has no key `{name}`" + (nearest(name, known) or "; docs/configuration.md lists them")
    return f"there is no section [{name}]" + (
        nearest(name, known, "[{}]") or f"; there are {', '.join(known)}"
    )


def _missing_field(found: re.Match[str], where: str, _kind: Any) -> str:
    return f"{where} lacks the key `{found[1]}`"


def _not_a_choice(found: re.Match[str], where: str, kind: Any) -> str:
    return _after(where, f"{found[1]} is not one of {', '.join(map(str, get_args(kind)))}")


def _wrong_kind(found: re.Match[str], where: str, _kind: Any) -> str:
    wanted = " or ".join(_KINDS.get(each, each) for each in found[1].split(" | ") if each != "null")
    if where.startswith("[") and found[2] == "object" and found[1] == "array":
        return f"{where} is a list: write [{where}]"
    return _after(where, f"expected {wanted}, got {_KINDS.get(found[2], found[2])}")


def _outside_limits(found: re.Match[str], where: str, _kind: Any) -> str:
    limit = found[3].removesuffix(".0")
    return _after(where, f"expected {_KINDS.get(found[1], found[1])} {_LIMITS[found[2]]} {limit}")


def _wrong_length(found: re.Match[str], where: str, _kind: Any) -> str:
    return _after(where, f"expected text {_LIMITS[found[1]]} {found[2]} characters")


def _wrong_form(found: re.Match[str], where: str, _kind: Any) -> str:
    begins = re.fullmatch(r"\^\(?([\w|?]+)\)?://(?:\|\^\$)?", found[1])
    if begins is None:
        return _after(where, f"expected text of the form {found[1]}")
    schemes = ["http", "https"] if begins[1] == "https?" else begins[1].split("|")
    return _after(where, f"expected an address that begins with {' or '.join(f'{s}://' for s in schemes)}")


_PROBLEMS: tuple[tuple[str, Callable[[re.Match[str], str, Any], str]], ...] = (
    (r"Object contains unknown field `(.*)`", _unknown_field),
    (r"Object missing required field `(.*)`", _missing_field),
    (r"Invalid enum value (.*)", _not_a_choice),
    (r"Expected `(.*)`, got `(.*)`", _wrong_kind),
    (r"Expected `(int|float)` (>=|<=|>|<) (.*)", _outside_limits),
    (r"Expected `str` of length (>=|<=) (\d+)", _wrong_length),
    (r"Expected `str` matching regex '(.*)'", _wrong_form),
)
"""Patterns of msgspec's messages, each with the function that makes our sentence of a match."""


def _type_at(kind: Any, path: str) -> Any:
    """Return the type of the value at `path` in a document of type `kind`, without annotations and None."""
    kind = _bare(kind)
    for name, index in _TOKEN.findall(path):
        if index:
            kind = next(iter(get_args(kind)), None)
        else:
            kind = get_type_hints(kind).get(name) if _fields(kind) else None
        kind = _bare(kind)
    return kind


def _bare(kind: Any) -> Any:
    while get_origin(kind) in (Annotated, Union, UnionType):
        kind = next(each for each in get_args(kind) if each is not NoneType)
    return kind


def _fields(kind: Any) -> list[str]:
    return list(kind.__struct_fields__) if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else []
