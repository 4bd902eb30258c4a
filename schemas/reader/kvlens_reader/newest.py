"""Figures as their tables have them: of each row the newest version. No IO."""

from __future__ import annotations

from typing import Any

from kvlens_reader.records.keys import KEYS

Key = tuple[Any, ...]
"""Table, then the columns that name a row."""


class Newest:
    """Keeps the rows of the tables; what comes again or late changes nothing."""

    def __init__(self) -> None:
        self._rows: dict[Key, Any] = {}

    def apply(self, figure: Any) -> bool:
        """Take a figure, or None of an unknown table; return whether it is newer than what was there."""
        if figure is None:
            return False
        key = key_of(figure)
        before = self._rows.get(key)
        if before is not None and (before.version > figure.version or before == figure):
            return False
        self._rows[key] = figure
        return True

    def rows(self, table: str) -> list[Any]:
        """Return the rows of a table, such as `fills_10s`."""
        return [row for (of, *_), row in self._rows.items() if of == table]

    def forget_before(self, moment: Any) -> None:
        """Drop the rows of windows, or times, before a moment."""
        self._rows = {key: row for key, row in self._rows.items() if time_of(row) >= moment}


def time_of(figure: Any) -> Any:
    """Return the start of a figure's window, or its time."""
    return figure.window if hasattr(figure, "window") else figure.time


def key_of(figure: Any) -> Key:
    """Return what names a figure's row."""
    columns = KEYS[figure.TABLE]
    key = [getattr(figure, column) for column in columns if column != HOUR]
    if HOUR in columns:
        key.append(time_of(figure).replace(minute=0, second=0, microsecond=0))
    return (figure.TABLE, *key)


HOUR = "toStartOfHour(time)"
"""Of rows whose key has the hour of their time only."""
