"""Differences between recount and tables: all are counted, the first ones are kept."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

KEPT = 20
"""Differences of a table that are kept."""

Kind = Literal["differs", "missing", "older", "unexpected"]
"""differs: a column is wrong. missing: there is no such row. older: the row rests on fewer records than were
applied. unexpected: nothing in the log gives this row."""


@dataclass(frozen=True)
class Difference:
    """One row that is not as the log says; values are those of the columns that differ."""

    table: str
    key: dict[str, Any]
    kind: Kind
    expected: dict[str, Any]
    found: dict[str, Any]


@dataclass
class Findings:
    """What a comparison found."""

    compared: Counter[str] = field(default_factory=Counter)
    """Rows by table."""
    differing: Counter[str] = field(default_factory=Counter)
    """Rows by table."""
    kept: list[Difference] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """Rows that could not be compared, by reason."""
    records: int = 0
    """Read from the log."""
    undecodable_records: int = 0
    _kept_of: Counter[str] = field(default_factory=Counter)

    def differ(self, difference: Difference) -> None:
        """Count a difference."""
        self.differing[difference.table] += 1
        if self._kept_of[difference.table] < KEPT:
            self._kept_of[difference.table] += 1
            self.kept.append(difference)

    @property
    def equal(self) -> bool:
        """Whether no difference was found."""
        return not self.differing
