"""Reads a request trace of a form that `forms` describes, in units that are read, told or called assumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

from pipeline.traces.block_size import FROM_IDS, Counted, bounds, chosen, inferred
from pipeline.traces.conversations import flattened
from pipeline.traces.fields import first_of, hash_ids, look_up, tokens
from pipeline.traces.forms import Form, form_of, read_forms
from pipeline.traces.rows import Row, rows
from pipeline.traces.sessions import Placed, named, seconds_of, unlike_their_turns
from pipeline.traces.times import in_seconds, moment
from pipeline.traces.trace import BadField, HashId, Trace, TraceError, TraceRequest


@dataclass(frozen=True, slots=True)
class _Read:
    """A request as the file has it."""

    where: str
    input_length: int
    ids: tuple[HashId, ...]
    block_size: int | None
    time: float | datetime | None
    delay: float | None
    session: str
    chat: str
    continues: str


def read_trace(path: Path, block_size: int | None = None, time_unit: str | None = None) -> Trace:
    """Read a trace, plain or packed with gzip or zstd.

    Block size in tokens and unit of time (a key of `times.UNITS`) are those of the file unless given.
    Raises TraceError for a form that cannot be read, a bad line, and lines that contradict each other or what
    is given; OSError for a bad file.
    """
    form, read, left_out = _read(path)
    size, size_from = _block_size(path, form, read, block_size)
    numbers, times = _times(path, form, read, time_unit)
    placed = [
        Placed(each.where, seconds, each.delay, each.session, each.chat, each.continues)
        for each, seconds in zip(read, numbers, strict=True)
    ]
    try:
        seconds = seconds_of(placed)
    except BadField as error:
        raise TraceError(path, "", str(error)) from error
    sessions, sessions_from = named(placed, [each.ids for each in read], size)
    requests = [
        TraceRequest(at, each.input_length, each.ids, session)
        for at, each, session in zip(seconds, read, sessions, strict=True)
    ]
    remarks = [form.remark] if form.remark else []
    if left_out:
        remarks.append(f"{left_out:,} objects of the file are no requests ({form.only and form.only[0]}).")
    if times is None:
        remarks.append("It has no times: requests are played in the order of the file.")
    if any(each.time is None and each.delay is not None for each in read):
        remarks.append(
            "Turns without a time come their delay after the turn before, which takes no time here."
        )
    if form.session and unlike_their_turns(placed, [each.ids for each in read]):
        remarks.append(
            "No turn of a session begins with the block that the turn before began with: if lines hold only "
            "what is new (Dynamo's mooncake-delta), the hits are too low."
        )
    requests.sort(key=attrgetter("seconds"))
    return Trace(requests, size, size_from, times, form.name, tuple(remarks), sessions_from)


def _read(path: Path) -> tuple[Form, list[_Read], int]:
    """Return the form, the requests in the order of the file, and how many objects are none."""
    form: Form | None = None
    read: list[_Read] = []
    left_out = 0
    for row in rows(path):
        if form is None:
            form = _known(path, row)
        for request in flattened(row, form):
            if form.only and look_up(request.fields, form.only[0]) != form.only[1]:
                left_out += 1
                continue
            try:
                read.append(_request(request, form))
            except BadField as error:
                raise TraceError(path, request.where, f"not a trace request: {error}") from error
    if form is None or not any(each.ids for each in read):
        raise TraceError(path, "", "no request of the trace looks up a block")
    return form, read, left_out


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


def _request(row: Row, form: Form) -> _Read:
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
    name_of_time, time = first_of(fields, form.time)
    name_of_delay, delay = first_of(fields, form.delay)
    if stated is not None and tokens(stated, name) == 0:
        raise BadField(f"{name} is 0")
    return _Read(
        row.where,
        input_length,
        of_row,
        None if stated is None else tokens(stated, name),
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


def _block_size(path: Path, form: Form, read: Sequence[_Read], given: int | None) -> tuple[int, str]:
    """Return the size and how it is known; what is given or stated must fit every request."""
    counted = [Counted(each.where, each.input_length, len(each.ids)) for each in read if each.ids]
    size, size_from = given, "--block-size"
    for each in read:
        if each.block_size is not None and each.block_size != size:
            if size is not None:
                raise TraceError(
                    path, each.where, f"blocks of {each.block_size:,} tokens, not {size:,} as {size_from}"
                )
            size, size_from = each.block_size, f"the block size in {each.where}"
    if size is not None:
        for one in counted:
            if not bounds([one]).hold(size):
                raise TraceError(
                    path, one.where, f"{one} is not possible with blocks of {size:,} ({size_from})"
                )
        return size, size_from
    found = inferred(counted)
    if found.contradict:
        first, second = _in_order(found.by_least, found.by_greatest, counted)
        raise TraceError(
            path, second.where, f"{second}, and {first} in {first.where}: no block size fits both"
        )
    documented = form.documented_block_size
    if documented is not None and found.hold(documented):
        exact = found.least == found.greatest
        return documented, FROM_IDS if exact else f"{form.name}; input_length ÷ ids allows {found}"
    best = chosen(found)
    if best is None:
        raise TraceError(
            path,
            "",
            f"its blocks may be of {found} tokens, by input_length ÷ ids: say how many with --block-size",
        )
    return best, FROM_IDS if found.least == found.greatest else f"{FROM_IDS}, which allows {found}"


def _in_order(one: Counted | None, other: Counted | None, every: Sequence[Counted]) -> Iterator[Counted]:
    """Yield both in the order of the file."""
    return (each for each in every if each is one or each is other)


def _times(
    path: Path, form: Form, read: Sequence[_Read], asked: str | None
) -> tuple[list[float | None], str | None]:
    """Return the times in seconds, None where a request has none, and their unit and how it is known."""
    timed = [(number, each.time) for number, each in enumerate(read) if each.time is not None]
    seconds: list[float | None] = [None] * len(read)
    if not timed:
        return seconds, "delays in milliseconds" if any(each.delay is not None for each in read) else None
    try:
        found, unit = in_seconds(
            [time for _, time in timed], asked=asked, said=form.time_unit, by=f"as {form.name} has"
        )
    except BadField as error:
        raise TraceError(path, "", str(error)) from error
    for (number, _), at in zip(timed, found, strict=True):
        seconds[number] = at
    return seconds, unit
