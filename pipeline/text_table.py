"""Rows of text as a table for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from connectors.process.addresses import printable

_GAP = "  "


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 worker` or `1,200 workers`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def text_table(
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[int] = (),
    width: int | None = None,
    expendable: Sequence[int] = (),
) -> Iterator[str]:
    """Yield a line for each row, the header first; the columns with numbers in `right` are right-aligned.

    Where lines would be longer than `width` characters, columns of `expendable` are left out: first those
    without values, then in the given order. A last line names those left out that have values. None means
    no limit. Cells are shown `printable`.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    shown = list(range(len(widths)))
    dropped: list[int] = []
    empty = {number for number in expendable if not any(row[number].strip() for row in rows[1:])}
    for number in sorted(expendable, key=lambda each: each not in empty):
        if width is None or sum(widths[each] + len(_GAP) for each in shown) - len(_GAP) <= width:
            break
        shown.remove(number)
        dropped.append(number)
    for row in rows:
        cells = (
            row[number].rjust(widths[number]) if number in right else row[number].ljust(widths[number])
            for number in shown
        )
        yield _GAP.join(cells).rstrip()
    names = [rows[0][number] for number in sorted(dropped) if rows[0][number] and number not in empty]
    if names:
        yield f"(a wider terminal also shows: {', '.join(names)})"
