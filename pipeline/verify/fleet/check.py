"""Compares the rows of one shard with its recount while the recount goes through the residency topic.

As in `replica/check.py`, a row is right if it is what the recount says after the very record that its version
names, and it has to be there if it follows from the records that the fleet agent has committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

import msgspec

from pipeline.kafka.refusal import RecordRefused
from pipeline.verify import times
from pipeline.verify.findings import BEFORE_THE_BEGINNING, TOO_NEW, Findings
from pipeline.verify.fleet import expected
from pipeline.verify.fleet.beginning.undoing import Beginning
from pipeline.verify.fleet.expected import FleetRow
from pipeline.verify.fleet.recount import Fills, FleetRecount
from pipeline.verify.keys import RowKey, key_of, unequal
from schemas.fleet_rows import CapacityCurveRow, FillsRow, HotPrefixRow, RedundancyRow
from schemas.residency import ResidencyRecord
from schemas.setting_rows import HashGroupRow
from schemas.settings import Fleet

_RowAndFills = tuple[FillsRow | CapacityCurveRow, Fills]
"""A row, and what it is made from."""
_NOT_COMPARED = ("trust",)
"""Columns of rows about several sources: their trust is that of the moment at which the row was written."""
PREFIXES_EXACT = 2048
"""In a window with more prefixes that have duplicated or refilled tokens, some may not be listed."""


class Written(NamedTuple):
    """How much of a shard the log and the tables have."""

    committed: int
    """The fleet agent has written what follows from records before this offset."""
    oldest: datetime
    """Older rows may be gone."""
    stood: bool = True
    """Whether the agent wrote the state as of exactly that offset."""
    begin: int = 0
    """Records before this offset are gone."""
    shards: int = 1
    """How many there are, this one included."""


class ShardCheck:
    """Compares the recount of one shard with its rows in the tables."""

    def __init__(
        self,
        shard: int,
        settings: Fleet,
        found: Iterable[FleetRow],
        findings: Findings,
        written: Written,
        *,
        forget_seconds: float,
        beginning: Beginning | None = None,
    ) -> None:
        """`found`: its rows. `beginning`: what is known of the time before the log begins."""
        beginning = beginning or Beginning()
        self.recount = FleetRecount(settings, beginning, shards=written.shards, forget_seconds=forget_seconds)
        self._beginning = beginning
        self._chains_learned = beginning.whole
        self._from = _compared_from(beginning, self.recount.losses_known_from)
        for kind, window in self._from.items():
            findings.begins(kind.TABLE, times.start_of(window))
        self._shard = shard
        self._findings = findings
        self._written = written
        self._version_found: dict[RowKey, int] = {}
        self._of_version: dict[int, list[FleetRow]] = {}
        """Rows of the tables by version, until the recount has passed that."""
        self._hash_groups: dict[RowKey, HashGroupRow] = {}
        """Rows of this kind in the tables, one for each source."""
        for row in found:
            self._version_found[key_of(row)] = row.version
            if row.version < written.begin or not self._known(row):
                findings.left_out[BEFORE_THE_BEGINNING] += 1
                continue
            self._of_version.setdefault(row.version, []).append(row)
            if isinstance(row, HashGroupRow):
                self._hash_groups[key_of(row)] = row
        self._required: dict[RowKey, FleetRow] = {}
        """Rows that the tables must have, and lack or have only in an older version."""
        self._stood_at_commit = False
        self._listed = settings.hot_prefixes
        self._hot: dict[RowKey, HotPrefixRow] = {}
        """Prefixes of the windows that the last record closed, listed or not."""
        self.recount.on_window_over = self._window_over

    def apply(self, offset: int, record: ResidencyRecord) -> None:
        """Process the next record of the shard."""
        if offset >= self._written.committed:
            self._stand_at_commit()
        if not self._chains_learned and offset >= self._beginning.saved_offset:
            self._chains_learned = True
            self.recount.learn_chains(self._beginning.chains)
        self._hot = {}
        self.recount.apply(offset, record)
        fresh = {key_of(row): (row, fills) for row, fills in self._fills()}
        if not self._stood_at_commit:
            for row, fills in fresh.values():
                if not fills.early:
                    self._require(row)
        for found in self._of_version.pop(offset, ()):
            if isinstance(found, HotPrefixRow):
                self._compare(self._hot.pop(key_of(found), None), found)
            elif isinstance(found, RedundancyRow):
                self._compare(self._redundancy_of(found), found)
            elif isinstance(found, HashGroupRow):
                self._compare(self._hash_group_of(found), found)
            else:
                self._compare_fills(fresh.get(key_of(found)), found)

    def set_aside(self, refused: RecordRefused) -> None:
        """Process a record that cannot be applied."""
        self.recount.set_aside(refused)

    def finish(self, end: int) -> None:
        """Compare the rows that are left, after the records before `end`."""
        self._stand_at_commit()
        for version, rows in self._of_version.items():
            for found in rows:
                if version >= end:
                    self._findings.left_out[TOO_NEW] += 1
                else:
                    self._compare(None, found)
        for key, row in self._required.items():
            self._lacking(row, self._version_found.get(key))

    def _lacking(self, row: FleetRow, version_found: int | None) -> None:
        self._findings.lacking(row, msgspec.structs.asdict(row), self._written.oldest, version_found)

    def _known(self, row: FleetRow) -> bool:
        """Return whether the log suffices for such a row of this window."""
        if isinstance(row, HashGroupRow):
            return self._beginning.whole
        first = self._from.get(type(row))
        return first is None or times.number_of(row.window) >= first

    def _require(self, row: FleetRow) -> None:
        """Note a row that the tables must have, unless they have it or a newer version."""
        if self._known(row) and self._version_found.get(key_of(row), -1) < row.version:
            self._required[key_of(row)] = row

    def _fills(self) -> Iterator[_RowAndFills]:
        """Yield the rows that the last record changed, and what they are made from."""
        for of in self.recount.touched:
            fills = self.recount.fills[of]
            for row in expected.fills(of, fills, self._shard):
                yield row, fills

    def _redundancy(self, window: int) -> Iterator[RedundancyRow]:
        """Yield the rows of a window, if nothing changes until its end."""
        owners = self.recount.owners
        for key, version in self.recount.versions.items():
            yield expected.redundancy(
                key, owners.redundancy[key], self._shard, window=window, version=version
            )

    def _redundancy_of(self, found: RedundancyRow) -> RedundancyRow | None:
        """Return the row as of the last record for a window, which may be later than the clock's."""
        wanted = times.number_of(found.window)
        for key, steps in self.recount.steps.items():
            windows = [window for window in steps if window <= wanted]
            if windows:
                row = expected.redundancy(
                    key, steps[max(windows)], self._shard, window=wanted, version=found.version
                )
                if key_of(row) == key_of(found):
                    return row
        return None

    def _hash_group_of(self, found: HashGroupRow) -> HashGroupRow | None:
        """Return the row as it is after the last record."""
        rows = self.recount.hash_groups.rows(self._shard, found.version)
        return next((row for row in rows if key_of(row) == key_of(found)), None)

    def _hash_groups_stand(self) -> None:
        """Check that the last row of each source agrees with the present state, whenever it was written."""
        for row in self.recount.hash_groups.rows(self._shard, self.recount.offset):
            found = self._hash_groups.get(key_of(row))
            if found is None:
                self._lacking(row, None)
            elif found.version < self._written.committed and unequal(row, found) not in ([], ["version"]):
                self._lacking(row, found.version)

    def _window_over(self, window: int, next_window: int) -> None:
        self._prefixes_of(window)
        if not self._stood_at_commit:
            for number in range(max(window, next_window - times.CARRIED_AT_ONCE), next_window):
                for row in self._redundancy(number):
                    self._require(row)

    def _prefixes_of(self, window: int) -> None:
        """Note the rows of prefixes at a window's end; below PREFIXES_EXACT, require those to be listed."""
        figures = self.recount.prefixes.take()
        rows = [
            expected.hot_prefix(prefix, hot, self._shard, window=window, version=self.recount.offset)
            for prefix, hot in figures.items()
        ]
        self._hot |= {key_of(row): row for row in rows}
        if not self._stood_at_commit and len(rows) < PREFIXES_EXACT:
            for row in expected.listed(rows, self._listed):
                self._require(row)

    def _stand_at_commit(self) -> None:
        """Require the state at the fleet agent's commit: it wrote that, also into rows of later windows."""
        if self._stood_at_commit:
            return
        self._stood_at_commit = True
        if not self._written.stood or self.recount.window is None:
            return
        if self._beginning.whole:
            self._hash_groups_stand()
        later = {
            times.number_of(window)
            for table, window, *_ in self._version_found
            if table == RedundancyRow.TABLE
        }
        for window in {self.recount.window, *later}:
            if window >= self.recount.window:
                for row in self._redundancy(window):
                    if window == self.recount.window or key_of(row) in self._version_found:
                        self._require(row)

    def _compare(self, row: FleetRow | None, found: FleetRow) -> None:
        self._findings.compared[found.TABLE] += 1
        if row is None:
            self._findings.row_differs("unexpected", found, {}, {"version": found.version})
            return
        if isinstance(row, HotPrefixRow) and isinstance(found, HotPrefixRow):
            row = _as_far_as_known(row, found)
        columns = unequal(row, found)
        if isinstance(row, (RedundancyRow, HotPrefixRow)):
            columns = [column for column in columns if column not in _NOT_COMPARED]
        self._findings.columns_differ(row, found, columns)

    def _compare_fills(self, of_log: _RowAndFills | None, found: FleetRow) -> None:
        if of_log is None:
            self._compare(None, found)
            return
        row, fills = of_log
        if fills.early:
            self._findings.left_out[BEFORE_THE_BEGINNING] += 1
        elif isinstance(row, FillsRow) and isinstance(found, FillsRow):
            self._compare(_with_unknown_of(row, found, fills), found)
        else:
            self._compare(row, found)


def _compared_from(beginning: Beginning, losses_known_from: float) -> dict[type[FleetRow], int]:
    """Return the first window whose rows can be compared, for each table for which not all can."""
    if beginning.whole:
        return {}
    held = times.window_of(beginning.since) + 1
    lost = times.window_of(losses_known_from) + 1
    chained = max(lost, times.window_of(beginning.saved_clock) + 1)
    return {RedundancyRow: held, FillsRow: lost, CapacityCurveRow: lost, HotPrefixRow: chained}


def _with_unknown_of(row: FillsRow, found: FillsRow, fills: Fills) -> FillsRow:
    """Return the row, with as many fills unknown instead of cold as the one found has, if that is possible:
    the log does not show whether the source was taken to hash differently."""
    most = fills.cold_or_unknown
    blocks = found.unknown_blocks - row.unknown_blocks
    tokens = found.unknown_tokens - row.unknown_tokens
    if 0 < blocks <= most["blocks"] and 0 <= tokens <= most["tokens"]:
        return msgspec.structs.replace(
            row,
            cold_blocks=row.cold_blocks - blocks,
            cold_tokens=row.cold_tokens - tokens,
            unknown_blocks=found.unknown_blocks,
            unknown_tokens=found.unknown_tokens,
        )
    return row


def _as_far_as_known(row: HotPrefixRow, found: HotPrefixRow) -> HotPrefixRow:
    """Return the row with the figures of the one found, if that admits gaps large enough to explain them."""
    missing = found.refilled_tokens_missing
    if missing and found.refilled_tokens <= row.refilled_tokens <= found.refilled_tokens + missing:
        return msgspec.structs.replace(
            row,
            depth_blocks=found.depth_blocks,
            refilled_tokens=found.refilled_tokens,
            refilled_tokens_missing=missing,
        )
    return row
