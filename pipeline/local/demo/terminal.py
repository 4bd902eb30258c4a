"""The demo's figures as text for a terminal."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence

from pipeline.advice.reading import Advice
from pipeline.advice.text import answer_lines, finding_line
from pipeline.local.demo.figures import PoolFigures
from pipeline.local.demo.story import STORY_SECONDS
from pipeline.text_table import counted, text_table

_HEADS = (
    "replica/rank",
    "medium",
    "blocks",
    "of",
    "use",
    "fine",
    "tokens",
    "stored/s",
    "evicted/s",
    "lifetime",
    "trust",
)
_RIGHT = {2, 3, 5, 6, 7, 8, 9}
_EXPENDABLE = (5, 6, 4, 9)
"""Columns that a narrow terminal drops, in this order."""
_BAR = 12


def table(pools: Sequence[PoolFigures], width: int | None = None) -> list[str]:
    """Return a header and a line for each medium of each source, in at most `width` columns."""
    rows = (_HEADS, *map(_cells, pools))
    return list(text_table(rows, right=_RIGHT, width=width, expendable=_EXPENDABLE))


def screen(
    pools: Sequence[PoolFigures],
    freshness: tuple[float | None, float | None],
    urls: Mapping[str, str],
    notes: Sequence[str],
    size: os.terminal_size,
    advice: Advice | None = None,
    question: Sequence[str] = (),
) -> str:
    """Return the view, as much of it as fits; `freshness` is p50 and p99 in seconds."""
    head = [
        *_answer(advice, size.columns),
        "kvlens demo: what is cached where, last minute of a simulated fleet",
        f"open the boards: {story_page(urls)}",
        "",
    ]
    figures = table(pools, size.columns) if pools else ["waiting for the first rows"]
    figures.append(freshness_line(freshness))
    others = ["", *(f"{name}: {url}" for name, url in urls.items() if name != "page")]
    noted = ["", *(line for note in notes for line in textwrap.wrap(note, size.columns))]
    last = [
        *(textwrap.shorten(line, size.columns, placeholder=" …") for line in question),
        "Ctrl-C stops it; the data stay",
    ]
    room = size.lines - 1 - _height([*head, *figures, *last], size.columns)
    if _height([*noted, *others], size.columns) > room:
        others = []
    if len(noted) > room:
        noted = noted[len(noted) - room :] if room > 0 else []
    return "\n".join([*head, *figures, *others, *noted, *last])


def story_page(urls: Mapping[str, str]) -> str:
    """Return the address of the boards that shows the whole story."""
    return f"{urls['page']}?range={STORY_SECONDS}"


def _answer(advice: Advice | None, columns: int) -> list[str]:
    """Return the answer and the most valuable finding, which go above all else."""
    if advice is None or not advice.answer:
        return []
    first = "".join(finding_line(each) for each in advice.findings[:1])
    return [
        *answer_lines(advice.answer, columns),
        *textwrap.wrap(first, columns, subsequent_indent="   "),
        "",
    ]


def _height(lines: Sequence[str], columns: int) -> int:
    """Return how many lines of a terminal they take."""
    return sum(max(1, -(-len(line) // columns)) for line in lines)


def plain(
    pools: Sequence[PoolFigures], freshness: tuple[float | None, float | None], advice: Advice | None = None
) -> str:
    """Return one line, for a log."""
    resident = sum(pool.blocks for pool in pools)
    stored = sum(pool.stored_per_second for pool in pools)
    evicted = sum(pool.evicted_per_second for pool in pools)
    sources = counted(len({(pool.replica, pool.dp_rank) for pool in pools}), "source")
    return (
        f"{sources}, {resident:,} blocks resident, "
        f"{stored:.1f} stored/s, {evicted:.1f} evicted/s, {freshness_line(freshness)}"
        + "".join(f"; {line.title.lower()}: {line.figure}" for line in (advice.answer if advice else ()))
    )


def freshness_line(freshness: tuple[float | None, float | None]) -> str:
    """Return how long it takes from an engine's publication to a query that sees it."""
    median, tail = freshness
    if median is None or tail is None:
        return "event to queryable row: not known yet"
    return f"event to queryable row: {median:.1f} s (p50), {tail:.1f} s (p99)"


def _cells(pool: PoolFigures) -> tuple[str, ...]:
    capacity = f"{pool.capacity_blocks:,}" if pool.capacity_blocks else "?"
    bound = "<=" if pool.store_only else ">=" if pool.at_least else ""
    tokens_bound = "<=" if pool.is_bound else ">=" if pool.tokens_at_least else ""
    lifetime = "-" if pool.mean_lifetime_seconds is None else f"~{pool.mean_lifetime_seconds:.1f} s"
    return (
        f"{pool.replica}/{pool.dp_rank}",
        pool.medium,
        f"{bound}{pool.entries:,}{_beyond(pool)}",
        capacity,
        _bar(pool.entries, pool.capacity_blocks),
        f"{pool.fine_blocks:,}" if pool.fine_blocks else "",
        "?" if pool.tokens is None else f"{tokens_bound}{pool.tokens:,}",
        f"{pool.stored_per_second:.1f}",
        "-" if pool.store_only else f"{pool.evicted_per_second:.1f}",
        lifetime,
        pool.trust,
    )


def _beyond(pool: PoolFigures) -> str:
    """Mark more blocks than the engine has room for: removals are missing."""
    return "!" if 0 < pool.capacity_blocks < pool.entries else ""


def _bar(entries: int, capacity: int) -> str:
    if not capacity:
        return ""
    filled = min(_BAR, round(_BAR * entries / capacity))
    return "█" * filled + "░" * (_BAR - filled)
