"""Compares the figures topic with the tables: the newest version of each key in both.

The tables are compared with the log (`against_log`), so a figure that equals its row agrees with the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from connectors.kafka.encoding import UNDECODABLE
from pipeline.kafka.refusal import RecordRefused
from pipeline.verify.choices import choice_key
from pipeline.verify.findings import (
    BEFORE_THE_BEGINNING,
    EXPIRED,
    TOO_NEW,
    Difference,
    Findings,
    Kind,
    outside,
)
from pipeline.verify.keys import RowKey, key_of, named, unequal
from pipeline.verify.times import EPOCH
from schemas.choices import FIRST_WINS
from schemas.figures import FIGURES, time_of
from schemas.fleet_rows import CapacityCurveRow, ChoiceRow, FillsRow
from schemas.wire_prefix import json_decoder

NAME = "figures"
BEFORE_THE_TOPIC = "not in the topic of figures, and perhaps written before it began"
MARGIN = timedelta(seconds=60)
"""After the first record, the topic has all rows. Engines' clocks are ahead of the brokers' by less: at most
twice `worker.max_clock_ahead_seconds`, unless that is set too high for this."""


class Tabled(msgspec.Struct):
    """The field of a record that says which table its row belongs to."""

    table: str


_KINDS: dict[str, Any] = {kind.TABLE: json_decoder(kind) for kind in FIGURES}  # type: ignore[attr-defined]
_tabled = json_decoder(Tabled)


def decode_figure(value: bytes | None, headers: object, key: bytes | None) -> msgspec.Struct:
    """Return the row in a record. Raises RecordRefused."""
    try:
        row: msgspec.Struct = _KINDS[_tabled(value or b"").table](value or b"")
    except (*UNDECODABLE, KeyError) as error:
        raise RecordRefused("not_a_record", str(error), ()) from error
    return row


class Committed(NamedTuple):
    """What an agent had committed of a partition before the tables were read, as far as it is still there."""

    begin: int
    end: int
    since: datetime = EPOCH
    """When the first record was written, if the log no longer has its beginning."""

    def why_not(self, offset: int, at: datetime) -> str | None:
        """Return why the figure of a row need not be committed; it is of time `at` and rests on `offset`."""
        return outside(offset, self.begin, self.end) or (BEFORE_THE_BEGINNING if at < self.since else None)


class AgentsCommitted(NamedTuple):
    """The same for all partitions that a partition of figures follows from.

    Rows are written before anything commits. If the worker dies in between, and retention removes records
    that a row rests on before another worker reads them, the row stays and its figure is never committed.
    The version shows whether the last of these records is gone, the window whether earlier ones may be.
    """

    replica: Committed
    """The partition of the events topic with the same replicas as the partition of figures."""
    fleet: list[Committed]
    """Each partition of the residency topic."""
    choices: Committed
    """All partitions of the topic of choices."""

    def why_not(self, row: Any) -> str | None:
        """Return why the figure of a row need not be committed."""
        if isinstance(row, ChoiceRow):
            return self.choices.why_not(FIRST_WINS - row.version, row.time)
        of = self.fleet[row.shard] if isinstance(row, FillsRow | CapacityCurveRow) else self.replica
        return of.why_not(row.version, row.window)


class FiguresCheck:
    """Compares one partition of the topic with the rows of its replicas."""

    def __init__(
        self,
        found: Iterable[Any],
        findings: Findings,
        *,
        since: datetime,
        oldest: datetime,
        committed: AgentsCommitted,
        before: int,
    ) -> None:
        """`found`: rows of the tables. `since`: all rows from this time on are in the topic. `oldest`: older
        rows may be gone. `before`: records before this offset were committed when the tables were read."""
        self._rows = {_key(row): row for row in found}
        self._findings = findings
        self._committed = committed
        self._before = before
        self._since = since
        self._oldest = oldest
        self._newest: dict[RowKey, Any] = {}
        self._known: dict[RowKey, int] = {}
        """Versions that were committed when the tables were read."""

    def apply(self, offset: int, row: Any) -> None:
        """Process the next record."""
        key = _key(row)
        before = self._newest.get(key)
        # >= as in the tables: one record may give a window twice, first empty, then with what came.
        if before is None or row.version >= before.version:
            self._newest[key] = row
        if offset < self._before:
            self._known[key] = max(row.version, self._known.get(key, row.version))

    def lacks_some(self) -> bool:
        """Return whether the topic lacks a row that it must have, or has only an older version of it."""
        return any(
            row.version > getattr(self._newest.get(key), "version", -1) and not self._why_not_due(row)
            for key, row in self._rows.items()
        )

    def finish(self) -> None:
        """Compare, after the last record."""
        for key, row in self._rows.items():
            self._compare(row, self._newest.get(key))
        for key, version in self._known.items():
            if key not in self._rows:
                self._unexpected(self._newest[key])
            elif self._rows[key].version < version:
                self._differ("older", self._newest[key], self._rows[key], ["version"])

    def _compare(self, row: Any, figure: Any | None) -> None:
        findings = self._findings
        if figure is not None and figure.version > row.version:
            findings.left_out[TOO_NEW] += 1
        elif figure is not None and figure.version == row.version:
            findings.compared[NAME] += 1
            if columns := unequal(row, figure):
                self._differ("differs", row, figure, columns)
        elif why := self._why_not_due(row):
            findings.left_out[why] += 1
        else:
            findings.compared[NAME] += 1
            self._differ("older" if figure is not None else "missing", row, figure, ["version"])

    def _why_not_due(self, row: Any) -> str | None:
        return BEFORE_THE_TOPIC if time_of(row) < self._since else self._committed.why_not(row)

    def _unexpected(self, figure: Any) -> None:
        if time_of(figure) < self._oldest:
            self._findings.left_out[EXPIRED] += 1
            return
        self._findings.compared[NAME] += 1
        self._differ("unexpected", figure, figure, [])

    def _differ(self, kind: Kind, row: Any, figure: Any | None, columns: Iterable[str]) -> None:
        key = {"table": row.TABLE, **named(row)}
        wanted = {column: getattr(row, column) for column in columns}
        has = {} if figure is None else {column: getattr(figure, column) for column in columns}
        self._findings.differ(Difference(NAME, key, kind, wanted, has))


def _key(row: Any) -> RowKey:
    return (row.TABLE, *choice_key(row)) if isinstance(row, ChoiceRow) else key_of(row)
