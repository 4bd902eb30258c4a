"""Requests that a trace nests within their conversations, and those of subagents within these; pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeline.traces.forms import BLOCK_SIZE, Form
from pipeline.traces.rows import Row

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
    for number, request in enumerate(_requests(row.fields, form.within, 0.0), 1):
        yield Row(f"{row.where}, request {number}", common | request, scope=scope)


def _requests(fields: dict[str, Any], within: str, since: float) -> Iterator[dict[str, Any]]:
    """Yield the requests; times of those of a subagent may count from its own beginning."""
    nested = fields.get(within)
    for each in nested if isinstance(nested, list) else []:
        if not isinstance(each, dict):
            yield {}
        elif within in each:
            begun = since + _time(each)
            first = next((_time(inner) for inner in each[within] or [] if isinstance(inner, dict)), 0.0)
            yield from _requests(each, within, begun if first < begun else since)
        else:
            yield {**each, "t": since + _time(each)} if since else each


def _time(fields: dict[str, Any]) -> float:
    value = fields.get("t")
    return float(value) if isinstance(value, (int, float)) else 0.0
