"""Who holds and who lost which block: the flat tables of the compiled loop, and how they grow and shrink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.fleet.kernel.counts import (
    COUNTERS,
    HEAD,
    NO_WINDOW,
    TAIL,
    USED_BLOCKS,
    USED_PAIRS,
    WINDOW,
    Clock,
)
from pipeline.fleet.kernel.refills import FORGOTTEN, REFILL, no_refills, refills_of
from pipeline.fleet.kernel.tables import (
    LOAD,
    LOSS,
    SMALLEST,
    SPARSE,
    Losses,
    capacity_for,
    copy_blocks,
    copy_pairs,
    doubled,
    mapped,
)
from pipeline.fleet.packing import Packed, Rows, Table, fields_of, put_into, rows_of
from pipeline.residency.row_bytes import concatenated, copied
from schemas.fleet_checkpoints import TableName

CHUNK = 8192
"""Changes followed in one go; room for all of them is made first."""
LARGE = 1 << 18
"""Slots: moving a table of this size takes about ten milliseconds."""
EARLY = 0.6
"""Load at which a large table of blocks or pairs grows if there is time; at LOAD it has to."""
EARLY_LOSSES = 0.8
"""The same for losses, which have to grow only when all rows are used."""


class Index:
    """Blocks, pairs and losses of a shard, its clock, and what was filled again in the open window."""

    def __init__(self, packed: Packed, rows: Rows) -> None:
        """`packed` and `rows` are the tables of a base; a new index has none."""
        clock = Clock(
            np.zeros(COUNTERS, np.int64), np.zeros(1), np.zeros(16, np.int64), np.zeros(16, np.int64)
        )
        clock.counters[WINDOW] = NO_WINDOW
        self.clock = put_into(clock, packed.get("clock", ()))
        blocks, pairs, losses = rows
        self.blocks = _moved(blocks, copy_blocks, _capacity_to_stay(len(blocks)))
        self.pairs = _moved(pairs, copy_pairs, _capacity_to_stay(len(pairs)))
        self.losses = np.zeros(capacity_for(len(losses)), LOSS)
        self._put_losses(losses)
        self.refills = no_refills()
        if "refills" in packed:
            *fields, totals = packed["refills"]
            forgotten = np.frombuffer(totals, np.int64)[FORGOTTEN]
            self.refills = refills_of(rows_of(REFILL, fields), int(forgotten))

    def copied(self) -> dict[TableName, Table]:
        """Return copies of the tables for a base, with their slots as they are, which is fastest."""
        refills = self.refills.rows[self.refills.rows["root"] != 0]
        return {
            "blocks": copied(self.blocks),
            "pairs": copied(self.pairs),
            "losses": self._losses_in_order(),
            "clock": mapped(self.clock, np.copy),
            "refills": [*fields_of(refills), self.refills.totals.copy()],
        }

    @property
    def entries(self) -> int:
        """Return how many rows the tables have."""
        counters = self.clock.counters
        return int(counters[USED_BLOCKS] + counters[USED_PAIRS] + counters[TAIL] - counters[HEAD])

    @property
    def window(self) -> int | None:
        """Return the number of the window of the latest event time; None before the first change."""
        window = int(self.clock.counters[WINDOW])
        return None if window == NO_WINDOW else window

    def room_for_source(self, number: int) -> None:
        """Make sure that a source with this number can be counted."""
        while number >= len(self.clock.pairs_of_source):
            self.clock = self.clock._replace(
                pairs_of_source=doubled(self.clock.pairs_of_source),
                clears_of_source=doubled(self.clock.clears_of_source),
            )

    def make_room(self, coming: int, *, blocks_each: int, max_losses: int) -> None:
        """Make room for `coming` changes: a pair and a loss for each, and `blocks_each` blocks.

        At most `max_losses` losses are remembered.
        """
        counters = self.clock.counters
        used, capacity = int(counters[USED_BLOCKS]), len(self.blocks)
        if used + coming * blocks_each > capacity * LOAD or _sparse(used, coming, capacity):
            capacity = _capacity_to_stay(used + coming * blocks_each)
            self.blocks = _moved(self.blocks, copy_blocks, capacity)
        used, capacity = int(counters[USED_PAIRS]), len(self.pairs)
        if used + coming > capacity * LOAD or _sparse(used, coming, capacity):
            self.pairs = _moved(self.pairs, copy_pairs, _capacity_to_stay(used + coming))
        remembered, capacity = int(counters[TAIL] - counters[HEAD]), len(self.losses)
        needed = max(remembered, min(remembered + coming, max_losses))
        if needed > capacity or _sparse(remembered, coming, capacity):
            self._move_losses(max(SMALLEST, 1 << (needed - 1).bit_length()))

    def wants_room(self, *, max_losses: int) -> bool:
        """Return whether a table will have to grow soon, and is so large that this takes long."""
        return self._blocks_fill_up or self._pairs_fill_up or self._losses_fill_up(max_losses)

    def grow_early(self, *, max_losses: int) -> None:
        """Double the tables that will have to grow soon."""
        if self._blocks_fill_up:
            self.blocks = _moved(self.blocks, copy_blocks, 2 * len(self.blocks))
        if self._pairs_fill_up:
            self.pairs = _moved(self.pairs, copy_pairs, 2 * len(self.pairs))
        if self._losses_fill_up(max_losses):
            self._move_losses(2 * len(self.losses))

    @property
    def _blocks_fill_up(self) -> bool:
        return _fills_up(len(self.blocks), self.clock.counters[USED_BLOCKS], EARLY)

    @property
    def _pairs_fill_up(self) -> bool:
        return _fills_up(len(self.pairs), self.clock.counters[USED_PAIRS], EARLY)

    def _losses_fill_up(self, max_losses: int) -> bool:
        counters = self.clock.counters
        remembered = counters[TAIL] - counters[HEAD]
        return len(self.losses) < max_losses and _fills_up(len(self.losses), remembered, EARLY_LOSSES)

    def _move_losses(self, capacity: int) -> None:
        remembered = self._losses_in_order()
        self.losses = np.zeros(capacity, LOSS)
        self._put_losses(remembered)

    def _losses_in_order(self) -> Losses:
        """Return a copy of the losses, oldest first."""
        counters = self.clock.counters
        count, capacity = int(counters[TAIL] - counters[HEAD]), len(self.losses)
        begin = int(counters[HEAD]) & (capacity - 1)
        before_the_turn = self.losses[begin : begin + count]
        behind = self.losses[: count - len(before_the_turn)]
        return concatenated([before_the_turn, behind])

    def _put_losses(self, losses: Losses) -> None:
        """Write losses, oldest first, into the empty table."""
        begin = int(self.clock.counters[HEAD]) & (len(self.losses) - 1)
        before_the_turn = losses[: len(self.losses) - begin]
        behind = losses[len(before_the_turn) :]
        for at, some in ((begin, before_the_turn), (0, behind)):
            # As bytes, at the speed of memory: numpy would copy the rows field by field.
            self.losses[at : at + len(some)].view(np.uint8)[:] = some.view(np.uint8)


def _moved(rows: npt.NDArray[Any], copy: Callable[..., None], capacity: int) -> npt.NDArray[Any]:
    """Return a table of this capacity with the rows of another one."""
    table = np.zeros(capacity, rows.dtype)
    copy(rows, table)
    return table


def _fills_up(capacity: int, used: int, early: float) -> bool:
    return capacity >= LARGE and used > capacity * early


def _capacity_to_stay(used: int) -> int:
    """Return a capacity at which blocks or pairs need not grow early at once: they would be moved twice."""
    capacity = capacity_for(used)
    return 2 * capacity if _fills_up(capacity, used, EARLY) else capacity


def _sparse(used: int, coming: int, capacity: int) -> bool:
    return capacity > 16 * CHUNK and used + coming < capacity * SPARSE
