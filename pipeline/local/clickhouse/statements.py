"""Recognises an INSERT with data, and a SELECT that may be streamed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

# Formats whose blocks can be sent one after another; others have a head or an end around all rows.
STREAMABLE = frozenset(
    {"native", "tabseparated", "tsv", "tabseparatedraw", "csv", "rowbinary", "jsoneachrow"}
)
DEFAULT_FORMAT = "TabSeparated"

_TOKEN = re.compile(
    rb"""
    (?P<space>\s+ | --[^\n]*(?:\n|\Z) | \#[ !][^\n]*(?:\n|\Z) | /\*.*?\*/)
    | (?P<quoted>'(?:[^'\\]|\\.|'')*' | `(?:[^`\\]|\\.)*` | "(?:[^"\\]|\\.)*")
    | (?P<unfinished>/\*.* | ['`"].*)
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<open>[(\[{]) | (?P<close>[)\]}])
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_BEFORE_DATA = re.compile(rb"[ \t\f]*;?\r?\n?")
"""Behind a format's name: blanks and one line end belong to the statement."""


class Verdict(Enum):
    """What the bytes read so far turn out to be."""

    UNDECIDED = auto()
    """The statement may go on in bytes not yet read."""
    PLAIN = auto()
    """Not an INSERT with data: the whole input is the statement."""
    INSERT = auto()
    """An INSERT whose data follow the head."""
    INSERT_INPUT = auto()
    """INSERT ... SELECT ... FROM input(): the engine would write nothing and report no error."""


class Head(NamedTuple):
    """`head` is the INSERT without FORMAT, `format` its format, `data_at` the offset where data begin."""

    verdict: Verdict
    head: bytes = b""
    format: str = ""
    data_at: int = 0


class _Word(NamedTuple):
    text: bytes  # upper case
    start: int
    end: int


def read_head(data: bytes, complete: bool) -> Head:
    """Look at the beginning of a request's input; `complete` when there is no more of it."""
    words = _words(data)
    first = next(words, None)
    if first is None or (first.end == len(data) and not complete):
        return Head(Verdict.PLAIN if complete else Verdict.UNDECIDED)
    if first.text != b"INSERT":
        return Head(Verdict.PLAIN)
    for word in words:
        if word.end == len(data) and not complete:
            break
        if word.text == b"VALUES":
            return Head(Verdict.INSERT, data[: word.start], "Values", word.end)
        if word.text in (b"SELECT", b"WITH") and complete:
            return Head(Verdict.INSERT_INPUT if "input" in calls(data) else Verdict.PLAIN)
        if word.text in (b"SELECT", b"WITH"):
            break
        if word.text == b"FORMAT":
            name = next(words, None)
            if name is None or (name.end == len(data) and not complete):
                break
            return Head(
                Verdict.INSERT,
                data[: word.start],
                data[name.start : name.end].decode(),
                next(_BEFORE_DATA.finditer(data, name.end)).end(),
            )
    return Head(Verdict.PLAIN if complete else Verdict.UNDECIDED)


def output_format(statement: bytes) -> str | None:
    """The FORMAT a statement names for its result, if any."""
    words = list(_words(statement))
    for at in range(len(words) - 2, -1, -1):
        name = words[at + 1]
        rest = (token for token in _TOKEN.finditer(statement, name.end) if token.lastgroup != "space")
        after = next(rest, None)
        if words[at].text == b"FORMAT" and (after is None or after[0].upper() in (b";", b"SETTINGS")):
            return statement[name.start : name.end].decode()
    return None


def is_empty(statement: bytes) -> bool:
    """Whether there is nothing in it but blanks and comments."""
    return all(token.lastgroup == "space" for token in _TOKEN.finditer(statement))


def is_select(statement: bytes) -> bool:
    """Whether the engine's streaming call accepts it; it refuses SHOW, DESCRIBE, EXPLAIN and the like."""
    first = next(_words(statement), None)
    return first is not None and first.text in (b"SELECT", b"WITH")


def calls(statement: bytes) -> set[str]:
    """Lower-case names followed by an opening bracket: functions, table functions, engines, sources."""
    names = set()
    name = ""
    for token in _TOKEN.finditer(statement):
        if token.lastgroup == "open" and token[0] == b"(" and name:
            names.add(name)
        if token.lastgroup == "word":
            name = token[0].decode().lower()
        elif token.lastgroup == "quoted":
            name = token[0][1:-1].decode(errors="replace").lower()
        elif token.lastgroup != "space":
            name = ""
    return names


def _words(data: bytes) -> Iterator[_Word]:
    """Bare words outside of brackets, quotes and comments."""
    depth = 0
    for token in _TOKEN.finditer(data):
        if token.lastgroup == "open":
            depth += 1
        elif token.lastgroup == "close":
            depth -= 1
        elif token.lastgroup == "word" and depth == 0:
            yield _Word(token[0].upper(), token.start(), token.end())
