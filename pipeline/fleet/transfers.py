"""Runs of blocks that sources received or computed: which ones, as the shards decide and tell one another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pipeline.fleet.index import Index
from pipeline.fleet.kernel.counts import DONE, ENDED_FULL, REFILLS_FULL
from pipeline.fleet.kernel.refills import make_room
from pipeline.fleet.kernel.tables import doubled
from pipeline.fleet.kernel.transfers import (
    ANSWER,
    ANSWERS,
    ASKED,
    COMPUTED,
    FILL,
    FILLS,
    TRANSFER,
    Waiting,
    count_decided,
    decide,
)
from pipeline.fleet.open_windows import OpenWindows
from pipeline.fleet.packing import Packed, Table, fields_of, rows_of
from pipeline.residency.row_bytes import concatenated, copied
from schemas.fleet_checkpoints import FleetHead, TableName
from schemas.residency import Decisions
from schemas.rows import Row

LATER = 60.0
"""Seconds of event time. A run that no shard decided on is given up once all shards that decide are so far
past it: its last block did not reach its shard, for instance because a record was set aside."""
SAYS_SECONDS = 30.0
"""Of event time. Where any shard decides or waits, each reports this often how far it is, although it has
nothing to decide: fills that wait in the others could not be given up otherwise."""
MOST = 1 << 20
"""Most fills that wait in a shard; beyond them, the oldest count as computed."""
MOST_KEPT = 1 << 15
"""Decisions that are kept: one may come before the fills that it is about."""


class Transfers:
    """Fills that wait, and what is known of their runs."""

    def __init__(self, head: FleetHead, packed: Packed, *, shard: int, shards: int) -> None:
        """`packed` has the tables of a base."""
        self._head = head
        self._shard = shard
        self._shards = shards
        fills = rows_of(FILL, packed.get("fills", ()))
        self._known = rows_of(ANSWER, packed.get("answers", ()))
        """The latest decisions of this shard and others, sorted by run."""
        self._came = int(self._known["came"].max(initial=0))
        """How many decisions ever came."""
        self._fresh = rows_of(ANSWER, ())
        """Those that came since fills were counted last, sorted by run."""
        self._asked = 0
        """Fills that waited then: of decisions, only fresh ones are news to them."""
        self._passed = 0.0
        """Event time up to which they were given up."""
        self._new: list[npt.NDArray[np.void]] = []
        """Own decisions since the last cut."""
        self._said_to = 0.0
        room = np.zeros(len(fills) + 1024, FILL)
        room[: len(fills)] = fills
        self.waiting = Waiting(room, np.zeros(1024, ANSWER), np.array([len(fills), 0], np.int64))
        self._given_up = 0

    def take_given_up(self) -> int:
        """Return how many fills counted as computed, as no shard decided on them, since the last call."""
        found, self._given_up = self._given_up, 0
        return found

    def copied(self) -> dict[TableName, Table]:
        """Return copies of what a base needs."""
        fills = self.waiting.fills[: self.waiting.used[FILLS]]
        return {"fills": fields_of(copied(fills)), "answers": fields_of(copied(self._known))}

    def sources(self) -> set[int]:
        """Return the numbers of the sources of fills that wait."""
        return set(self.waiting.fills["source"][: self.waiting.used[FILLS]].tolist())

    def make_room(self, coming: int) -> None:
        """Make room for `coming` more fills and answers."""
        fills, answers, used = self.waiting
        while len(fills) < used[FILLS] + coming:
            fills = doubled(fills)
        while len(answers) < used[ANSWERS] + coming:
            answers = doubled(answers)
        self.waiting = Waiting(fills, answers, used)

    def decided_elsewhere(self, decisions: Decisions) -> None:
        """Take in what another shard decided."""
        rows = np.zeros(len(decisions.known), ANSWER)
        rows["run"] = np.frombuffer(decisions.runs, "<u8")
        rows["known"] = np.frombuffer(decisions.known, np.uint8)
        self._head.decided_to[decisions.shard] = max(
            decisions.decided_to, self._head.decided_to.get(decisions.shard, 0.0)
        )
        self._learn(rows)

    def take(self, event_time: float) -> Iterator[Decisions]:
        """Yield for all other shards what this one decided since the last call, up to `event_time`."""
        # A shard that waits makes the others report, as they see that it does.
        heard = self._head.decided_to or (self._shards > 1 and self.waiting.used[FILLS])
        says = heard and event_time >= self._said_to + SAYS_SECONDS
        if not self._new and not says:
            return
        rows = concatenated([rows_of(ANSWER, ()), *self._new])
        self._new, self._said_to = [], event_time
        yield Decisions(self._shard, event_time, rows["run"].astype("<u8").tobytes(), rows["known"].tobytes())

    def count(self, index: Index, opened: OpenWindows, version: int) -> list[Row]:
        """Count the fills that are decided by now; return rows of windows that ended."""
        self._answer()
        count = int(self.waiting.used[FILLS])
        if not count:
            return []
        fills = self.waiting.fills[:count]
        _decide(fills[: self._asked], self._fresh)
        _decide(fills[self._asked :], self._known)
        self._fresh = self._fresh[:0]
        self._give_up(fills, float(index.clock.time[0]))
        rows: list[Row] = []
        at, why = 0, -1
        while why != DONE:
            at, why = count_decided(fills, at, opened.cells, index.refills, opened.ended, version)
            if why == REFILLS_FULL:
                index.refills = make_room(index.refills)
            elif why == ENDED_FULL:
                rows += opened.ended_fills()
        if at:
            left = copied(fills[at:])
            self.waiting.fills[: len(left)].view(np.uint8)[:] = left.view(np.uint8)
        self.waiting.used[FILLS] = self._asked = count - at
        return rows + opened.ended_fills()

    def _answer(self) -> None:
        """Take in what this shard decided itself."""
        answers = copied(self.waiting.answers[: self.waiting.used[ANSWERS]])
        self.waiting.used[ANSWERS] = 0
        if len(answers):
            if self._shards > 1:
                self._new.append(answers)
            self._learn(answers)

    def _learn(self, answers: npt.NDArray[np.void]) -> None:
        answers["came"] = np.arange(self._came, self._came + len(answers)) + 1
        self._came += len(answers)
        known = concatenated([self._known, answers])
        if len(known) > 2 * MOST_KEPT:
            known = known[known["came"] > self._came - MOST_KEPT]
        self._known = _by_run(known)
        if self._asked:
            self._fresh = _by_run(concatenated([self._fresh, answers]))

    def _give_up(self, fills: npt.NDArray[np.void], event_time: float) -> None:
        """Let fills count as computed that no shard will decide on, or that are too many.

        `event_time` is that of this shard, which decides alone if there is no other.
        """
        alone = event_time if self._shards == 1 else 0.0
        passed = min(self._head.decided_to.values(), default=alone) - LATER
        too_many = max(0, len(fills) - MOST)
        if passed <= self._passed and not too_many:
            fills = fills[self._asked :]
        self._passed = passed
        undecided = fills["state"] == ASKED
        gone = undecided & (fills["time"] < passed)
        gone[:too_many] |= undecided[:too_many]
        if gone.any():
            fills["state"][gone] = COMPUTED
            self._given_up += int(gone.sum())


def _by_run(answers: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Return answers sorted by run; of those on one run the first that came stays the first."""
    return answers[np.argsort(answers["run"], kind="stable")]


def _decide(fills: npt.NDArray[np.void], answers: npt.NDArray[np.void]) -> None:
    """Apply answers, sorted by run, to the fills that wait for them."""
    if len(fills) and len(answers):
        states = np.where(answers["known"] != 0, TRANSFER, COMPUTED).astype(np.uint8)
        decide(fills, answers["run"].copy(), states)
