"""Compares the rows of one source with its recount while the recount goes through the log.

A row's version is the offset of the last record it rests on, so a row is right if it is what the recount
says after that very record. It need not be the newest one: tables may be written while they are looked at.
And a row has to be there if it follows from the records that the worker has committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from pipeline.verify import times
from pipeline.verify.findings import BEFORE_THE_BEGINNING, Findings, outside
from pipeline.verify.keys import RowKey, SourceId, key_of, named, unequal
from pipeline.verify.replica import expected
from pipeline.verify.replica.expected import ReplicaRow
from pipeline.verify.replica.residency_sums import PoolOfSession, ResidencySums, joined
from pipeline.verify.replica.source import SourceRecount
from pipeline.verify.replica.two_sizes import TwoSizes
from schemas.events import EngineCounters, EventsRecord, Opened, is_kept_once
from schemas.rows import EngineCountersRow, FlowRow, ObjectsRow, OccupancyRow, SourceRow, StreamHealthRow
from schemas.settings import Worker

WINDOWS_TO_FORGET = 6
"""Windows after a session of unknown beginning in which late batches of it may have counted."""
_NOT_KNOWN_LATE = frozenset({"store_only", "trust", "trust_since"})
"""Columns that may depend on sessions which the log no longer has."""


class SourceCheck:
    """Compares the recount of one source with its rows in the tables."""

    def __init__(
        self,
        source: SourceId,
        worker: Worker,
        found: Iterable[ReplicaRow],
        findings: Findings,
        *,
        committed: int,
        whole: bool,
        oldest: datetime,
    ) -> None:
        """`found`: its rows. `committed`: the worker has written what follows from records before this
        offset. `whole`: the log has the beginning. `oldest`: older rows may be gone."""
        self._source = source
        self._worker = worker
        self._findings = findings
        self._committed = committed
        self._oldest = oldest
        self._known_from: int | None = 0 if whole else None
        """First window of which everything is known; None until the log shows one."""
        self._whole = whole
        self._begun: set[int] = set()
        """Incarnations whose beginning the log has."""
        self._first_life = 0
        """Incarnation of the first record; notices of it that came before may be gone."""
        self._version_found: dict[RowKey, int] = {}
        self._of_version: dict[int, list[ReplicaRow]] = {}
        """Rows of the tables by version, until the recount has passed that."""
        for row in found:
            self._version_found[key_of(row)] = row.version
            self._of_version.setdefault(row.version, []).append(row)
        self._two_sizes = {
            (row.medium, row.group_idx)
            for rows in self._of_version.values()
            for row in rows
            if isinstance(row, OccupancyRow) and row.covered_blocks
        }
        """Pools with two granularities, by the tables. The worker may know both from a session before the log
        begins; in a session in which the recount finds the second one only later, they count differently."""
        self._two_sizes_counted: set[tuple[str, int]] = set()
        """Pools for which the recount knew both when the present session began."""
        self._fresh: dict[RowKey, ReplicaRow] = {}
        """Rows that became final with the present version."""
        self._required: dict[RowKey, ReplicaRow] = {}
        """Rows that the tables must have, and lack or have only in an older version."""
        self._stood_at_commit = False
        self.residency_sums: dict[PoolOfSession, ResidencySums] = {}
        """What the residency topic must add up to at the commit."""
        self._forgotten_sums: dict[PoolOfSession, ResidencySums] = {}
        """The same of what was forgotten."""
        self._unknown = False
        """Whether the source was forgotten and has had no record since."""
        self._carried_to = -1
        self._idle_windows = int(worker.idle_carry_seconds // times.WINDOW)
        self._recount_anew()

    def _recount_anew(self) -> None:
        self.recount = SourceRecount(*self._source, self._worker)
        self.recount.on_version_over = self._version_over
        self.recount.on_window_closed = self._window_closed
        self.recount.on_windows_empty = self._windows_empty
        self.recount.on_life_over = self._life_over
        self.recount.on_model_over = self._model_over
        self.recount.on_never_reached = self._never_reached
        self.recount.on_counters = self._counters

    def apply(self, offset: int, record: EventsRecord) -> None:
        """Process the next record of the source."""
        if offset >= self._committed:
            self._stand_at_commit()
        self._first_life = record.incarnation if not self.recount.life.incarnation else self._first_life
        if record.incarnation > self.recount.life.incarnation and any(
            isinstance(event, Opened) for batch in record.batches[:1] for event in batch.events
        ):
            self._begun.add(record.incarnation)
        self._unknown = False
        self.recount.apply(offset, record)

    def set_aside(self, offset: int) -> None:
        """Process a record that names the source and cannot be applied."""
        if offset >= self._committed:
            self._stand_at_commit()
        if not self._unknown:
            self.recount.set_aside(offset)

    def forget(self, offset: int) -> None:
        """Forget the source with the record at `offset`, which is of another source."""
        if offset >= self._committed:
            self._stand_at_commit()
        self.recount.forgotten(offset)
        self._final(self._standing())
        self._version_over()
        self._forgotten_sums = joined(self._forgotten_sums, self.recount.residency_sums())
        self._recount_anew()
        self._unknown = True

    def rests_on(self, offset: int) -> bool:
        """Return whether a row names the record at `offset` as the last one it rests on."""
        return offset in self._of_version

    def begin_anew(self, offset: int) -> None:
        """Drop what came before the record at `offset`: the source may have been forgotten, or not."""
        if offset >= self._committed:
            self._stand_at_commit()
        # If it was not, later records may add rows without a change of version.
        rows = self._of_version.pop(self.recount.version, ()) if self.recount.life.incarnation else ()
        self._findings.left_out[BEFORE_THE_BEGINNING] += len(rows)
        self._fresh.clear()
        self._recount_anew()
        self._begun.clear()
        self._two_sizes_counted.clear()
        self._known_from = None

    def finish(self, begin: int, end: int) -> None:
        """Compare the rows that are left, after the records from `begin` to before `end`."""
        self._stand_at_commit()
        self._version_over()
        for version, rows in self._of_version.items():
            why = outside(version, begin, end)
            for found in rows:
                if why:
                    self._findings.left_out[why] += 1
                else:
                    self._compare(None, found)
        for key, row in self._required.items():
            self._findings.lacking(row, _figures(row), self._oldest, self._version_found.get(key))

    # Callbacks of the recount

    def _window_closed(self, _window: int) -> None:
        self._final(expected.open_window(self.recount))

    def _windows_empty(self, first: int, next_window: int) -> None:
        if self._known_from is None and self.recount.life.incarnation in self._begun:
            # The open window of the session before, and what it left behind there, are unknown.
            self._known_from = first + WINDOWS_TO_FORGET
        for window in range(max(first, next_window - times.CARRIED_AT_ONCE), next_window):
            self._final(expected.carried_window(self.recount, window))

    def _life_over(self) -> None:
        self._final(expected.life(self.recount))
        pools = self.recount.pools.items()
        self._two_sizes_counted = {where for where, pool in pools if isinstance(pool, TwoSizes)}

    def _model_over(self, first: int) -> None:
        """Note what rows show that the worker carried, if it did, to windows after the model's last one."""
        for window in range(first, self._carried_to + 1):
            rows = expected.carried_window(self.recount, window)
            self._fresh.update((key_of(row), row) for row in rows)

    def _never_reached(self, first: int, last: int) -> None:
        for window in range(max(first, last - times.CARRIED_AT_ONCE), last + 1):
            self._final([expected.health(self.recount, window, carried=True)])

    def _counters(self, said: EngineCounters, at: float) -> None:
        self._final([expected.counters(self.recount, said, at)])

    def _final(self, rows: Iterable[ReplicaRow]) -> None:
        for row in rows:
            self._fresh[key_of(row)] = row
            # What was committed does not follow from a row's version: counters, for one, do not change that.
            if not self._stood_at_commit:
                self._require(row)

    def _stand_at_commit(self) -> None:
        """Require the rows as they were when the worker committed: it has written these, too."""
        if not self._stood_at_commit:
            self._stood_at_commit = True
            self.residency_sums = joined(self._forgotten_sums, self.recount.residency_sums())
            for row in self._standing():
                self._require(row)

    def _require(self, row: ReplicaRow) -> None:
        """Note a row that the tables must have, unless they have it or a newer version."""
        if self._known(row) and self._version_found.get(key_of(row), -1) < row.version:
            self._required[key_of(row)] = row

    def _standing(self) -> Iterator[ReplicaRow]:
        yield from expected.open_window(self.recount)
        yield from expected.life(self.recount)

    # Comparing

    def _version_over(self) -> None:
        """Compare every row of the version that ends: from now on the recount is past it."""
        rows = self._of_version.pop(self.recount.version, None) if self.recount.life.incarnation else None
        self._carried_to = max(
            self._carried_to,
            (self.recount.window or 0) + self._idle_windows,
            -1 if self.recount.reported_to is None else self.recount.reported_to,
        )
        if rows:
            standing = {key_of(row): row for row in self._standing()}
            for found in rows:
                key = key_of(found)
                row = self._fresh.get(key) or standing.get(key) or self._carried(found)
                self._compare(row, found)
        self._fresh.clear()

    def _carried(self, found: ReplicaRow) -> ReplicaRow | None:
        """Return the row of a window after the open one, if the worker may carry rows there."""
        if not isinstance(found, OccupancyRow | ObjectsRow | StreamHealthRow):
            return None
        window, last = times.number_of(found.window), self.recount.window
        if last is None or not last < window <= self._carried_to:
            return None
        key = key_of(found)
        return next(
            (row for row in expected.carried_window(self.recount, window) if key_of(row) == key), None
        )

    def _known(self, row: ReplicaRow) -> bool:
        if isinstance(row, SourceRow):
            return self._whole or row.incarnation in self._begun
        if self._known_from is None:
            return False
        late = self._known_from > 0
        if late and isinstance(row, OccupancyRow | FlowRow | ObjectsRow) and is_kept_once(row.medium):
            return False  # it may hold what is left of sessions before
        if not self._whole and isinstance(row, OccupancyRow | FlowRow):
            pool = (row.medium, row.group_idx)
            if pool in self._two_sizes and pool not in self._two_sizes_counted:
                return False
        return isinstance(row, EngineCountersRow) or times.number_of(row.window) >= self._known_from

    def _compare(self, row: ReplicaRow | None, found: ReplicaRow) -> None:
        # A pool may be one that only a session before the beginning of the log used.
        of_before = row is None and not self._whole and _is_empty(found)
        if of_before or not self._known(found if row is None else row):
            self._findings.left_out[BEFORE_THE_BEGINNING] += 1
            return
        self._findings.compared[found.TABLE] += 1
        if row is None:
            self._findings.row_differs("unexpected", found, {}, {"version": found.version})
            return
        columns = unequal(row, found)
        if not self._whole:
            unknown = set(_NOT_KNOWN_LATE)
            if isinstance(row, SourceRow) and row.incarnation == self._first_life:
                unknown.add("opened_at")
            if isinstance(row, OccupancyRow) and not row.capacity_blocks:
                unknown.add("capacity_blocks")
            if isinstance(row, ObjectsRow):
                # The worker may know a group from a session before.
                unknown.add("unknown_accesses")
                if not row.capacity_bytes:
                    unknown.add("capacity_bytes")
            columns = [column for column in columns if column not in unknown]
        self._findings.columns_differ(row, found, columns)


def _is_empty(row: ReplicaRow) -> bool:
    """Return whether a row only says that a pool is empty."""
    if isinstance(row, ObjectsRow):
        return not (row.objects or row.stored_objects or row.accesses)
    return isinstance(row, OccupancyRow) and not row.entries


def _figures(row: ReplicaRow) -> dict[str, Any]:
    keys = named(row)
    return {column: value for column, value in msgspec.structs.asdict(row).items() if column not in keys}
