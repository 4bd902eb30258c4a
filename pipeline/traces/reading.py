"""Reads a request trace of a form in `forms`, in units that are stated, given, or reported as assumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path

from pipeline.traces.block_size import FROM_IDS, Counted, bounds, chosen, inferred
from pipeline.traces.fields import tokens
from pipeline.traces.forms import Form
from pipeline.traces.requests import ReadRequest, read_requests
from pipeline.traces.sessions import named, seconds_of, unlike_their_turns
from pipeline.traces.times import in_seconds
from pipeline.traces.trace import BadField, Trace, TraceError, TraceRequest


def read_trace(path: Path, block_size: int | None = None, time_unit: str | None = None) -> Trace:
    """Read a trace, plain or packed with gzip or zstd.

    Block size in tokens and unit of time (a key of `times.UNITS`) are those of the file unless given.
    Raises TraceError for a form that cannot be read, a bad line, and lines that contradict each other or what
    is given; OSError for a bad file.
    """
    found = read_requests(path)
    form, read = found.form, found.read
    try:
        size, size_from = _block_size(path, form, read, block_size)
        stated, times = _times(form, read, time_unit or found.time_unit)
        seconds = seconds_of(read, stated)
    except BadField as error:
        raise TraceError(path, "", str(error)) from error
    sessions, sessions_from = named(read, size)
    requests = [
        TraceRequest(at, each.input_length, each.ids, session)
        for at, each, session in zip(seconds, read, sessions, strict=True)
    ]
    requests.sort(key=attrgetter("seconds"))
    remarks = tuple(_remarks(form, read, found.left_out, times))
    return Trace(requests, size, size_from, times, form.name, remarks, sessions_from)


def _block_size(path: Path, form: Form, read: Sequence[ReadRequest], given: int | None) -> tuple[int, str]:
    """Return the size and how it is known; what is given or stated must fit every request.

    Raises TraceError, and BadField if what is given is no number of tokens.
    """
    counted = [Counted(each.where, each.input_length, len(each.ids)) for each in read if each.ids]
    size, size_from = given, "--block-size"
    if size is not None:
        tokens(size, size_from)
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
        *others, last = [each for each in counted if each is found.by_least or each is found.by_greatest]
        both = "".join(f", and {each} in {each.where}: no block size fits both" for each in others)
        raise TraceError(path, last.where, f"{last}{both or ' is not possible'}")
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


def _times(
    form: Form, read: Sequence[ReadRequest], asked: str | None
) -> tuple[list[float | None], str | None]:
    """Return the times in seconds, None where there is none, and how their unit is known. Raises BadField."""
    timed = [(number, each.time) for number, each in enumerate(read) if each.time is not None]
    seconds: list[float | None] = [None] * len(read)
    if not timed:
        return seconds, "delays in milliseconds" if any(each.delay is not None for each in read) else None
    found, unit = in_seconds(
        [time for _, time in timed], asked=asked, said=form.time_unit, by=f"as {form.name} has"
    )
    for (number, _), at in zip(timed, found, strict=True):
        seconds[number] = at
    return seconds, unit


def _remarks(form: Form, read: Sequence[ReadRequest], left_out: int, times: str | None) -> Iterator[str]:
    """Yield what the file lacks, and what is assumed instead."""
    if form.remark:
        yield form.remark
    if left_out:
        yield f"{left_out:,} objects of the file are no requests ({form.only and form.only[0]})."
    if times is None:
        yield "It has no times: requests are played in the order of the file."
    if any(each.time is None and each.delay is not None for each in read):
        yield "Turns without a time come their delay after the turn before, which takes no time here."
    if form.session and unlike_their_turns(read):
        yield (
            "No turn of a session begins with the block that the turn before began with: if lines hold only "
            "what is new (Dynamo's mooncake-delta), the hits are too low."
        )
