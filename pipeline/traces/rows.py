"""A trace file as a series of objects: JSON lines, a JSON document or CSV; UTF-8, or UTF-16 with its BOM."""

from __future__ import annotations

import csv
import io
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import msgspec

from pipeline.traces.kind import encoding_of, is_json
from pipeline.traces.trace import TraceError
from pipeline.unzipped import unzipped


@dataclass(frozen=True, slots=True)
class Row:
    """One object of a trace file."""

    where: str
    fields: dict[str, Any]
    of_csv: bool = False
    scope: str = ""
    """Names what the ids are unique in, where that is not the whole file."""


def rows(path: Path) -> Iterator[Row]:
    """Yield the objects in the order of the file. Raises TraceError, and OSError for a bad file."""
    line = [0]
    try:
        with unzipped(path) as raw:
            beginning = raw.read(4096)
        with unzipped(path) as raw:
            text = io.TextIOWrapper(raw, encoding=encoding_of(beginning), newline=None)
            yield from _json_rows(path, text, line) if is_json(beginning) else _csv_rows(text, line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(path, f"line {line[0]}", f"not a trace request: {error}") from error
    except (EOFError, zlib.error) as error:
        raise TraceError(path, f"line {line[0] + 1}", f"the file is damaged: {error}") from error


def _json_rows(path: Path, text: TextIO, line: list[int]) -> Iterator[Row]:
    decode = msgspec.json.Decoder().decode
    first = True
    for line[0], content in enumerate(text, 1):
        if content.isspace():
            continue
        try:
            value = decode(content)
        except msgspec.DecodeError:
            if not first:
                raise
            # It may be one document over several lines.
            document = decode(content + text.read())
            yield from _objects(path, "line 1", document, may_be_list=True)
            return
        yield from _objects(path, f"line {line[0]}", value, may_be_list=first)
        first = False


def _objects(path: Path, where: str, value: Any, *, may_be_list: bool) -> Iterator[Row]:
    if may_be_list and isinstance(value, list):
        for number, element in enumerate(value, 1):
            yield from _objects(path, f"element {number}", element, may_be_list=False)
    elif isinstance(value, dict):
        yield Row(where, value)
    else:
        raise TraceError(path, where, "not a trace request: not an object")


def _csv_rows(text: TextIO, line: list[int]) -> Iterator[Row]:
    csv.field_size_limit(sys.maxsize)
    reader = csv.DictReader(text, skipinitialspace=True)
    for fields in reader:
        line[0] = reader.line_num
        yield Row(f"line {line[0]}", {str(name): value for name, value in fields.items()}, of_csv=True)
