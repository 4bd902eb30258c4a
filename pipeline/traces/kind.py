"""Tells request traces and recordings apart by how they begin; pure."""

from __future__ import annotations

import codecs
import re
from typing import Literal

Kind = Literal["trace", "recording", "other"]

_JSON = re.compile(r"\{|\[\s*[{\]]")
_COLUMN = re.compile(r"\s*\"?[A-Za-z][\w .()/%#-]{0,60}\"?\s*")
_TELLING = re.compile(r"time|token|length|hash|arriv|session", re.IGNORECASE)
_BIN32, _ARRAYS = 0xC6, (*range(0x90, 0xA0), 0xDC, 0xDD)
_OTHERS = {
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"PK\x03\x04": "a zip archive",
    b"BZh": "packed with bzip2",
    b"\xfd7zXZ": "packed with xz",
}


def kind(beginning: bytes) -> tuple[Kind, str]:
    """Return the kind of a file from its beginning, unzipped, and what it seems to be if it is neither."""
    if beginning[:1] and (beginning[0] == _BIN32 or beginning[0] in _ARRAYS):
        return "recording", ""
    if is_json(beginning) or _is_csv(_text(beginning)):
        return "trace", ""
    for mark, name in _OTHERS.items():
        if beginning.startswith(mark):
            return "other", name
    return "other", "" if beginning.strip() else "empty"


def is_json(beginning: bytes) -> bool:
    """Return whether it is an object or an array of objects; `[kafka]` of a TOML file is neither."""
    return _JSON.match(_text(beginning).lstrip()) is not None


def encoding_of(beginning: bytes) -> str:
    """Return the encoding of a text file by its byte order mark, UTF-8 without one."""
    wide = beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return "utf-16" if wide else "utf-8-sig"


def _text(beginning: bytes) -> str:
    return beginning.decode(encoding_of(beginning), "ignore")


def _is_csv(text: str) -> bool:
    columns = text.splitlines()[0].split(",") if text.strip() else []
    return (
        len(columns) > 1
        and all(_COLUMN.fullmatch(column) for column in columns)
        and any(_TELLING.search(column) for column in columns)
    )
