"""Collects differences between recount and tables: counts all of them, keeps the first ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import eq
from typing import Any, Literal

from pipeline.verify.keys import named

KEPT = 20
"""Differences kept for each table."""
BEFORE_THE_BEGINNING = "the log no longer has all that came before"
TOO_NEW = "rests on records that came after the comparison had begun"
EXPIRED = "so old that the table may have dropped it"

Kind = Literal["differs", "missing", "older", "unexpected"]
"""differs: a column is wrong. missing: there is no such row. older: the row rests on fewer records than were
applied. unexpected: nothing in the log gives this row."""

Verdict = Literal["equal", "different", "late"]
"""late: nothing differs, but some rows could not be compared yet."""


@dataclass(frozen=True)
class Difference:
    """One row that is not as the log says; values are those of the columns that differ."""

    table: str
    key: dict[str, Any]
    kind: Kind
    expected: dict[str, Any]
    found: dict[str, Any]
    remarks: tuple[str, ...] = ()
    """Differences that no column shows."""


def difference(
    table: str,
    key: dict[str, Any],
    wanted: Mapping[str, Any] | None,
    has: Mapping[str, Any] | None,
    same: Callable[[Any, Any], bool] = eq,
) -> Difference:
    """Return how a row differs, column by column. None: there is no such row; one of both is there."""
    kind: Kind = "missing" if has is None else "unexpected" if wanted is None else "differs"
    one, other = wanted or {}, has or {}
    columns = [name for name in {**one, **other} if not same(one.get(name), other.get(name))]
    expected, found = ({name: of[name] for name in columns if name in of} for of in (one, other))
    return Difference(table, key, kind, expected, found)


def outside(offset: int, begin: int, end: int) -> str | None:
    """Return why what rests on the record at `offset` cannot be compared with those from `begin` to `end`."""
    return TOO_NEW if offset >= end else BEFORE_THE_BEGINNING if offset < begin else None


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
    late: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Rows that could not be compared yet, by table and reason: a later run may compare them."""
    compared_from: dict[str, datetime] = field(default_factory=dict)
    """By table: the first window from which on all partitions are compared, where the log begins too late."""
    records: int = 0
    """Read from the log."""
    set_aside: Counter[str] = field(default_factory=Counter)
    """Records that cannot be applied, by reason."""
    removed: int = 0
    """Records of the events topic that are gone, and that no worker has applied or reported as lost yet."""
    degraded: int = 0
    """Sources that are open and lack something that the log never had, or lost before it was applied."""
    _kept_of: Counter[str] = field(default_factory=Counter)

    def differ(self, difference: Difference) -> None:
        """Count a difference."""
        self.differing[difference.table] += 1
        if self._kept_of[difference.table] < KEPT:
            self._kept_of[difference.table] += 1
            self.kept.append(difference)

    def row_differs(self, kind: Kind, row: Any, wanted: dict[str, Any], has: dict[str, Any]) -> None:
        """Count a row that is not as the log says; the values are those of `Difference`."""
        self.differ(Difference(row.TABLE, named(row), kind, wanted, has))

    def columns_differ(self, row: Any, found: Any, columns: Collection[str]) -> None:
        """Count a row in which these columns differ, if any do."""
        if columns:
            wanted, has = ({column: getattr(one, column) for column in columns} for one in (row, found))
            self.row_differs("differs", found, wanted, has)

    def lacking(
        self, row: Any, columns: dict[str, Any], oldest: datetime, version_found: int | None = None
    ) -> None:
        """Count a row that the tables lack, or have only in an older version; before `oldest` it may be gone.

        `columns`: what to say of it if there is none.
        """
        at = getattr(row, "window", None) or getattr(row, "time", None)
        if at is not None and at < oldest:
            self.left_out[EXPIRED] += 1
        elif version_found is None:
            self.compared[row.TABLE] += 1
            self.row_differs("missing", row, columns, {})
        else:
            self.row_differs("older", row, {"version": row.version}, {"version": version_found})

    def begins(self, table: str, window: datetime) -> None:
        """Note that rows of a partition are compared from this window on."""
        self.compared_from[table] = max(window, self.compared_from.get(table, window))

    def late_rows(self, table: str) -> int:
        """Return how many rows of a table could not be compared yet."""
        return sum(rows for (of, _), rows in self.late.items() if of == table)

    @property
    def verdict(self) -> Verdict:
        """The overall result."""
        return "different" if self.differing else "late" if self.late else "equal"

    @property
    def equal(self) -> bool:
        """Whether nothing differs and nothing is late."""
        return self.verdict == "equal"
