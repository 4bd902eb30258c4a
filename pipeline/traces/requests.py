"""The requests of a trace file as its form has them, before their units are known."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.traces.conversations import flattened
from pipeline.traces.fields import first_of, hash_ids, look_up, tokens
from pipeline.traces.forms import Form, form_of, read_forms
from pipeline.traces.header import common_to, is_header, time_unit, unwrapped
from pipeline.traces.rows import Row, rows
from pipeline.traces.times import moment
from pipeline.traces.trace import BadField, HashId, TraceError


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A request as the file has it."""

    where: str
    input_length: int
    ids: tuple[HashId, ...]
    block_size: int | None
    time: float | datetime | None
    delay: float | None
    """Seconds after the previous request of its session."""
    session: str
    chat: str
    continues: str


@dataclass(frozen=True, slots=True)
class Requests:
    """What a file holds, in its order."""

    form: Form
    read: list[ReadRequest]
    left_out: int
    """Objects that are no requests."""
    time_unit: str | None
    """As the file's header has it."""


def read_requests(path: Path) -> Requests:
    """Return the requests, with the fields that the header has for all. Raises TraceError and OSError."""
    form: Form | None = None
    header: dict[str, Any] = {}
    read: list[ReadRequest] = []
    left_out = 0
    for row in (each for outer in rows(path) for each in unwrapped(outer)):
        if form is None:
            if is_header(row.fields):
                header |= row.fields
                continue
            form = _known(path, row)
        for request in flattened(Row(row.where, common_to(header) | row.fields, row.of_csv), form):
            if form.only and look_up(request.fields, form.only[0]) != form.only[1]:
                left_out += 1
                continue
            try:
                read.append(_request(request, form))
            except BadField as error:
                raise TraceError(path, request.where, f"not a trace request: {error}") from error
    if form is None or not any(each.ids for each in read):
        raise TraceError(path, "", "no request of the trace looks up a block")
    try:
        return Requests(form, read, left_out, time_unit(header))
    except BadField as error:
        raise TraceError(path, "", f"its header: {error}") from error


def _known(path: Path, row: Row) -> Form:
    form = form_of(row.fields)
    if form is None:
        names = ", ".join(name for name in row.fields if name.isprintable())[:80] or "none"
        raise TraceError(
            path,
            row.where,
            f"no form of request trace that whatif reads (fields: {names}); it reads {read_forms()}",
        )
    if form.lacks:
        raise TraceError(path, "", f"{form.name} {form.lacks}")
    return form


def _request(row: Row, form: Form) -> ReadRequest:
    fields = row.fields
    name, length = first_of(fields, form.input_length)
    input_length = tokens(length, name)
    name, ids = first_of(fields, form.hash_ids)
    if ids is None and row.of_csv:
        ids = []
    of_row = hash_ids(ids, name, of_csv=row.of_csv)
    if row.scope:
        of_row = tuple(f"{row.scope}/{each}" for each in of_row)
    name, stated = first_of(fields, form.block_size)
    block_size = None if stated is None else tokens(stated, name)
    if block_size == 0:
        raise BadField(f"{name} is 0")
    name_of_time, time = first_of(fields, form.time)
    name_of_delay, delay = first_of(fields, form.delay)
    return ReadRequest(
        row.where,
        input_length,
        of_row,
        block_size,
        None if time is None else moment(time, name_of_time),
        None if delay is None else _milliseconds(delay, name_of_delay),
        _text(first_of(fields, form.session)[1]),
        *((_text(look_up(fields, path)) for path in form.chat) if form.chat else ("", "")),
    )


def _milliseconds(value: Any, name: str) -> float:
    number = moment(value, name)
    if isinstance(number, datetime):
        raise BadField(f"{name} is a date")
    return number / 1000


def _text(value: Any) -> str:
    return "" if value is None or isinstance(value, (dict, list)) else str(value)
