"""The answers of `kvlens whatif` as text tables."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from pipeline.text_table import text_table

_PLAYED = (
    *("", "replicas", "capacity", "routing", "hits", "ideal", "peer", "either", "evicted", "cold"),
    *("at least", "at most", "kept"),
)
_EXPENDABLE = (7, 12, 5, 6, 8, 9, 10, 11)
_PLAYED_LEGEND = """
* the fleet as it is. Capacity: tokens of each replica's cache. All else: % of the blocks looked up.
hits: found in the replica's cache. ideal: what one endless cache for all would find.
Not found: another replica had it (peer), it was evicted (evicted), both (either would help), new (cold).
at least, at most: bounds of these hits that the figures of * promise; kept: whether they hold."""

_SAVED = ("", "caches", "more cache", "saved at least", "saved at most", "share", "")
_SAVED_LEGEND = """
* as recorded. The rows below: bounds of the prefill that other conditions would have saved, in tokens and %.
Prefill is what was filled and came neither from a lower tier (promoted) nor by transfer nor from decoding.
Hits leave no events, so a recording does not tell how often a block was found, and gives no hit rate.
Where the stream does not tell it, prefill has what decoding filled: "at most" is too high if that recurs."""


def played_table(
    facts: dict[str, Any], rows: Sequence[dict[str, Any]], width: int | None = None
) -> Iterator[str]:
    """Yield the lines for a trace, none longer than `width`; columns that it has no room for are left out."""
    for sentence in _what_the_trace_holds(facts, rows):
        yield from _fitted(sentence, width)
    yield ""
    yield from text_table(
        (_PLAYED, *map(_played_cells, rows)), right=(1, 2, *range(4, 12)), width=width, expendable=_EXPENDABLE
    )
    yield from _fitted(_PLAYED_LEGEND, width)


def _what_the_trace_holds(facts: dict[str, Any], rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield (
        f"{facts['requests']:,} requests{_duration(facts['seconds'])} look up {facts['queried_blocks']:,} "
        f"blocks of {facts['block_size']} tokens (from {facts['block_size_from']}), "
        f"{facts['distinct_blocks']:,} of them different."
    )
    if facts["times"]:
        yield f"Times are {facts['times']}; no hit depends on their unit."
    yield from facts["remarks"]
    if any(row["routing"] == "sticky" and row["replicas"] > 1 for row in rows):
        yield f"Sticky routing goes by {facts['sessions_from']}."
    if not facts["ids_of_prefixes"]:
        yield "Its hash ids do not stand for whole prefixes, so the ideal and the promises are estimates."


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f" in {seconds / 60:,.0f} min" if seconds >= 120 else f" in {seconds:.3g} s"


def _played_cells(row: dict[str, Any]) -> tuple[str, ...]:
    fills, queried = row["fills"], row["queried_blocks"] or 1
    evicted = fills["evicted"] + fills["evicted_elsewhere"]
    rates = (
        *(row["block_hit_rate"], row["ideal_hit_rate"]),
        *(part / queried for part in (fills["peer"], fills["peer_and_evicted"], evicted, fills["cold"])),
    )
    promise = row["promised"]
    return (
        "*" if row["actual"] else "",
        str(row["replicas"]),
        _size(row["capacity_tokens"]),
        row["routing"],
        *map(_percent, rates),
        _percent(promise and promise["at_least"]),
        _percent(promise and promise["at_most"]),
        "" if promise is None else "yes" if promise["kept"] else "NO",
    )


def saved_table(rows: Sequence[dict[str, Any]], incomplete: int, width: int | None = None) -> Iterator[str]:
    """Yield the lines for a recording, as wide as `width`; the first row is what was recorded."""
    fleet, *others = rows
    filled = fleet["filled_tokens"]
    yield f"* {fleet['replicas']} caches filled {filled:,} tokens, by cause:"
    for cause, tokens in fleet["fills"].items():
        if tokens:
            yield f"    {cause:<18}{tokens:>16,}{_percent(tokens / filled):>8} %"
    if (decoding := fleet["replicas"] - fleet["computing"]) > 0:
        yield f"    {decoding} of the caches only decode: one cache for all means the others."
    if incomplete:
        yield f"    {incomplete} of the caches began before the recording or have gaps in it."
    yield ""
    yield from text_table(
        (_SAVED, *map(_saved_cells, others)), right=(1, 2, 3, 4, 5, 6), width=width, expendable=(1,)
    )
    yield from _fitted(_SAVED_LEGEND, width)


def _saved_cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        "",
        str(row["replicas"]),
        _size(row["extra_tokens"]),
        f"{row['saved_at_least']:,}",
        f"{row['saved_at_most']:,}",
        f"{_percent(row['share_at_least'])} to",
        f"{_percent(row['share_at_most'])} %",
    )


def _fitted(text: str, width: int | None) -> Iterator[str]:
    """Yield the lines of a text, wrapped to `width`."""
    for line in text.splitlines():
        if width is None or len(line) <= width:
            yield line
        else:
            yield from textwrap.wrap(line, width)


def _size(tokens: int | None) -> str:
    return "endless" if tokens is None else f"{tokens:,}"


def _percent(rate: float | None) -> str:
    return "" if rate is None else f"{100 * rate:.2f}"
