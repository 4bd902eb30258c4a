"""The advice as lines for a terminal. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from urllib.parse import urlencode

from pipeline.advice.reading import Advice, AdviceFinding, Answer
from pipeline.text_table import text_table

_INDENT = "   "
NOTHING_YET = "no rows yet in this range: does the worker run? `kvlens doctor` shows the cause"
NO_FINDING = "no finding: nothing known would save a hundredth of the prefill, and the data are complete"
NO_FINDING_IN_PART = (
    "no finding: nothing known would save a hundredth of the prefill, but not all data are complete; "
    "`kvlens doctor` says which, and why"
)
NOTHING_FILLED = (
    "no finding: no engine has filled anything in this range, so nothing could have been saved; "
    "`kvlens doctor` names engines that are not heard"
)
_LEAST_DETAIL = 16
"""Columns for the details beside the figures; a terminal with less has no table."""
_PREFILL, _DATA = 1, 4
"""`place` of two lines of the answer."""


def as_text(advice: Advice, width: int | None = None, page: str | None = None) -> Iterator[str]:
    """Yield the answer and, under it, the findings, in lines of at most `width`.

    With the address of the `page`, each finding has a link to its board; without, the query behind it.
    """
    if not advice.answer:
        yield NOTHING_YET
        return
    yield from answer_lines(advice.answer, width)
    yield ""
    if not advice.findings:
        yield _no_finding(advice.answer)
    for finding in advice.findings:
        yield from _finding_lines(finding, width)
        where = finding.evidence if page is None else page + link(advice, finding)
        # Not wrapped: it is there to be copied.
        yield f"{_INDENT}see: {where}"
    if any(finding.ranked_by == "tokens" for finding in advice.findings):
        yield ""
        yield from _wrapped("ranked by tokens: what a token of prefill costs is not known for all", width, "")


def _no_finding(answer: Sequence[Answer]) -> str:
    """Return the line to print when there is no finding."""
    lines = {line.place: line for line in answer}
    if _PREFILL not in lines:
        return NOTHING_FILLED
    complete = lines[_DATA].value if _DATA in lines else None
    return NO_FINDING if complete == 1 else NO_FINDING_IN_PART


def answer_lines(answer: Sequence[Answer], width: int | None = None) -> Iterator[str]:
    """Yield the lines of the answer, wrapped to `width`.

    A change is shown only if the range before has a figure: otherwise every line would say that it has none.
    """
    rows = [
        (line.title, line.figure, line.detail, "" if line.before is None else line.change) for line in answer
    ]
    if width is None:
        yield from text_table(rows)
        return
    heads = max(len(title) for title, *_ in rows), max(len(figure) for _, figure, *_ in rows)
    indent = " " * (sum(heads) + 4)
    for title, figure, detail, change in rows:
        text = f"{detail} ({change})" if change else detail
        if width < len(indent) + _LEAST_DETAIL:
            yield from _wrapped(f"{title}  {figure}  {text}".rstrip(), width, "")
        else:
            begins = f"{title.ljust(heads[0])}  {figure.ljust(heads[1])}  "
            yield from textwrap.wrap(text, width, initial_indent=begins, subsequent_indent=indent)


def finding_line(finding: AdviceFinding) -> str:
    """Return a finding and what to do, as one line."""
    return f"{finding.place}. {finding.finding}. {finding.action}: {finding.figure}"


def link(advice: Advice, finding: AdviceFinding) -> str:
    """Return the query string of the page that shows what a finding rests on."""
    fields = [("board", finding.board), ("from", str(advice.start)), ("to", str(advice.end))]
    fields.append(("model", finding.model))
    if finding.board == "replica":
        fields += [("replica", replica) for replica in finding.replicas]
    return "?" + urlencode(fields)


def _finding_lines(finding: AdviceFinding, width: int | None) -> Iterator[str]:
    yield from _wrapped(f"{finding.place}. {finding.finding}", width, "")
    yield from _wrapped(f"do: {finding.action}", width, _INDENT)
    yield from _wrapped(finding.figure, width, _INDENT)
    if finding.caveat:
        yield from _wrapped(f"but: {finding.caveat}", width, _INDENT)


def _wrapped(text: str, width: int | None, indent: str) -> Sequence[str]:
    if width is None:
        return [indent + text]
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=_INDENT, break_on_hyphens=False
    )
