"""Compares the rows of routers' choices with their topic, in which the first record of a choice counts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from pipeline.verify import times
from pipeline.verify.findings import Findings, outside
from pipeline.verify.keys import unequal
from schemas.choices import FIRST_WINS, ChoiceRecord
from schemas.fleet_rows import ChoiceRow

_Key = tuple[datetime, str, str, str]


class ChoicesCheck:
    """Compares one partition of the topic with the rows of its requests."""

    def __init__(
        self, found: Iterable[ChoiceRow], findings: Findings, *, begin: int, committed: int, oldest: datetime
    ) -> None:
        """`begin`: records before this offset are gone. `committed`: the worker has written all before this
        one. `oldest`: rows of earlier choices may be gone."""
        self._findings = findings
        self._begin = begin
        self._committed = committed
        self._oldest = oldest
        self._found = {choice_key(row): row for row in found}
        self._expected: dict[_Key, ChoiceRow] = {}

    def apply(self, offset: int, record: ChoiceRecord) -> None:
        """Process the next record."""
        row = _row(offset, record)
        self._expected.setdefault(choice_key(row), row)

    def finish(self, end: int) -> None:
        """Compare, once all records before `end` were processed."""
        for key, row in self._found.items():
            if why := outside(FIRST_WINS - row.version, self._begin, end):
                self._findings.left_out[why] += 1
            else:
                self._compare(self._expected.get(key), row)
        for key, row in self._expected.items():
            if key not in self._found and FIRST_WINS - row.version < self._committed:
                self._findings.lacking(row, msgspec.structs.asdict(row), self._oldest)

    def _compare(self, row: ChoiceRow | None, found: ChoiceRow) -> None:
        self._findings.compared[found.TABLE] += 1
        if row is None:
            self._findings.row_differs("unexpected", found, {}, msgspec.structs.asdict(found))
        else:
            self._findings.columns_differ(row, found, unequal(row, found))


def choice_key(row: ChoiceRow) -> _Key:
    """Return the key of a row; of its time, only the hour counts."""
    return row.time.replace(minute=0, second=0, microsecond=0), row.model, row.replica, row.request_id


def _row(offset: int, record: ChoiceRecord) -> ChoiceRow:
    fields = msgspec.structs.asdict(record)
    changed = {"time": times.moment(record.time), "not_judged": record.not_judged or ""}
    return ChoiceRow(**{**fields, **changed, "version": FIRST_WINS - offset})
