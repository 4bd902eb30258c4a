"""Requests that a trace nests within their conversations, and those of subagents within these; pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pipeline.traces.forms import BLOCK_SIZE, Form
from pipeline.traces.rows import Row
from pipeline.traces.times import moment
from pipeline.traces.trace import BadField

_ALL = "global"


def flattened(row: Row, form: Form) -> Iterator[Row]:
    """Yield the requests of one object, with the fields that the conversation has for all of them.

    Ids are unique in their conversation only, unless it says that they are in the whole file.
    """
    if not form.within:
        inner = row.fields.get(form.envelope)
        yield Row(row.where, inner, row.of_csv) if isinstance(inner, dict) else row
        return
    conversation = str(row.fields.get("id") or row.where)
    scope = "" if row.fields.get("hash_id_scope") == _ALL else conversation
    common = {name: row.fields[name] for name in BLOCK_SIZE if name in row.fields}
    common["conversation"] = conversation
    for number, request in enumerate(_requests(row.fields, form.within), 1):
        yield Row(f"{row.where}, request {number}", common | request, scope=scope)


def _requests(fields: dict[str, Any], within: str) -> Iterator[dict[str, Any]]:
    """Yield the requests; times of those of a subagent may count from its own beginning."""
    left = [(0.0, each) for each in reversed(_nested(fields, within))]
    while left:
        since, each = left.pop()
        if not isinstance(each, dict):
            yield {}
        elif within in each:
            inner = _nested(each, within)
            begun = since + _time(each)
            first = next((_time(one) for one in inner if isinstance(one, dict)), 0.0)
            left += [(begun if first < begun else since, one) for one in reversed(inner)]
        else:
            yield {**each, "t": since + _time(each)} if since else each


def _nested(fields: dict[str, Any], within: str) -> list[Any]:
    found = fields.get(within)
    return found if isinstance(found, list) else []


def _time(fields: dict[str, Any]) -> float:
    """Return a time in the file's unit; 0 where there is none, or a date."""
    try:
        found = moment(fields.get("t"), "t")
    except BadField:
        return 0.0
    return 0.0 if isinstance(found, datetime) else found
