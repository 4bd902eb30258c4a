"""Figures of open windows: of every source's fills, and of the current redundancy."""

from __future__ import annotations

import numpy as np

from pipeline.fleet.causes import CAUSES, NEEDED_BUCKETS, PARTS
from pipeline.fleet.fill_rows import Place, fill_rows
from pipeline.fleet.kernel.counts import NO_WINDOW, Cells, Ended, Gauges
from pipeline.fleet.kernel.tables import I64, doubled, mapped
from pipeline.fleet.packing import Packed, Table, put_into
from pipeline.fleet.registry import Names
from pipeline.reading import windows
from pipeline.residency import histogram
from schemas.fleet_checkpoints import FleetCell, FleetGauge, FleetHead, TableName
from schemas.fleet_rows import RedundancyRow
from schemas.rows import Row
from schemas.trust import TRUST_ORDER

CARRY_LIMIT = 360
"""Windows of unchanged redundancy written in one go; a checkpoint leaves the rest to the next one."""
ENDED = 256
"""Windows of cells that may end before their rows have to be taken."""
_OWNERS = 5


def cells_of(capacity: int) -> Cells:
    """Return cells without an open window."""
    return Cells(
        np.full(capacity, NO_WINDOW, np.int64),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.uint8),
        np.zeros(capacity, np.uint8),
        np.zeros((capacity, len(CAUSES)), np.int64),
        np.zeros((capacity, len(CAUSES)), np.int64),
        np.zeros((capacity, histogram.BUCKETS), np.int64),
        np.zeros((capacity, NEEDED_BUCKETS), np.int64),
        np.zeros((capacity, len(PARTS)), np.int64),
    )


def gauges_of(capacity: int) -> Gauges:
    """Return gauges that are all zero."""
    return Gauges(
        np.zeros((capacity, _OWNERS), np.int64),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.uint8),
    )


class OpenWindows:
    """Cells and gauges by number, and their rows."""

    def __init__(self, head: FleetHead, names: Names, *, shard: int, packed: Packed) -> None:
        """`head` says whose cells and gauges these are; `packed` has their figures, if there is a base."""
        self._head = head
        self._names = names
        self._shard = shard
        self.cells = cells_of(16)
        self._room_for_cells(len(head.cells))
        self.cells = put_into(self.cells, packed.get("cells", ()))
        self.gauges = put_into(gauges_of(4), packed.get("gauges", ()))
        self.spaces_of_source: dict[int, set[int]] = {}
        """Numbers of the hash domains and groups that each source had blocks of."""
        self._cell_numbers: dict[tuple[int, int], int] = {}
        """(source, space) to cell."""
        self._places: dict[int, Place] = {}
        """Cell to the source and space that it is of."""
        for number, cell in enumerate(head.cells):
            if cell is not None:
                self._name(number, cell)
        self._gauge_numbers = {(gauge.space, gauge.medium): at for at, gauge in enumerate(head.gauges)}
        """(space, medium) to gauge."""
        self._free = [number for number, cell in enumerate(head.cells) if cell is None]
        # A damaged base may have figures in free cells.
        self.cells.dirty[self._free] = 0
        self.ended = Ended(np.zeros(ENDED, np.int64), np.zeros(1, np.int64), cells_of(ENDED))

    def copied(self) -> dict[TableName, Table]:
        """Return copies of the figures for a base."""
        cells, gauges = len(self._head.cells), len(self._head.gauges)
        return {
            "cells": mapped(self.cells, lambda column: column[:cells].copy()),
            "gauges": mapped(self.gauges, lambda column: column[:gauges].copy()),
        }

    def cell(self, source: int, space: int) -> int:
        """Return the cell of a source and space."""
        number = self._cell_numbers.get((source, space))
        if number is None:
            cell = FleetCell(source, space)
            if self._free:
                number = self._free.pop()
                self._head.cells[number] = cell
            else:
                number = len(self._head.cells)
                self._head.cells.append(cell)
                self._room_for_cells(number + 1)
            self._name(number, cell)
        return number

    def _name(self, number: int, cell: FleetCell) -> None:
        self._cell_numbers[cell.source, cell.space] = number
        self.spaces_of_source.setdefault(cell.source, set()).add(cell.space)
        source, space = self._names.sources.by_number[cell.source], self._names.spaces.by_number[cell.space]
        assert source is not None, "a sound base has cells of known sources only"
        self._places[number] = Place(
            space.hash_domain, space.model, source.replica, source.dp_rank, space.group_idx
        )

    def gauge(self, space: int, medium: str) -> int:
        """Return the gauge of a space and medium."""
        number = self._gauge_numbers.get((space, medium))
        if number is None:
            number = self._gauge_numbers[space, medium] = len(self._head.gauges)
            self._head.gauges.append(FleetGauge(space, medium))
            if len(self.gauges.dirty) <= number:
                self.gauges = mapped(self.gauges, doubled)
        return number

    def _room_for_cells(self, count: int) -> None:
        while len(self.cells.dirty) < count:
            held = len(self.cells.dirty)
            self.cells = mapped(self.cells, doubled)
            self.cells.windows[held:] = NO_WINDOW

    def forget(self, source: int) -> list[Row]:
        """Free the cells of a source; return their last rows."""
        rows: list[Row] = []
        for space in self.spaces_of_source.pop(source, ()):
            number = self._cell_numbers.pop((source, space))
            if self.cells.dirty[number]:
                rows += self._fill_rows(self.cells, [number], np.array([number]))
            for column in self.cells:
                column[number] = 0
            self.cells.windows[number] = NO_WINDOW
            self._head.cells[number] = None
            self._places.pop(number, None)
            self._free.append(number)
        return rows

    def ended_fills(self) -> list[Row]:
        """Return the last rows of the windows of cells that ended since the last call."""
        count = int(self.ended.used[0])
        if not count:
            return []
        self.ended.used[0] = 0
        return self._fill_rows(self.ended.cells, self.ended.numbers[:count].tolist(), np.arange(count))

    def open_fills(self) -> list[Row]:
        """Return rows of what changed in open windows since the last call."""
        numbers = np.flatnonzero(self.cells.dirty)
        self.cells.dirty[numbers] = 0
        return self._fill_rows(self.cells, numbers.tolist(), numbers)

    def _fill_rows(self, cells: Cells, numbers: list[int], at: I64) -> list[Row]:
        """Return rows of the figures in the places `at`, which belong to the cells with these numbers."""
        places = [self._places[number] for number in numbers]
        return fill_rows(cells, at, places, shard=self._shard, one_in=self._head.one_in)

    def gauges_changed(self, window: int) -> None:
        """Note that changes within `window` moved gauges: rows from there on show an older state."""
        for number in np.flatnonzero(self.gauges.dirty).tolist():
            self._head.gauges[number].written = window - 1
        self.gauges.dirty[:] = 0

    def redundancy(self, to: int, trusts: dict[int, int], *, again: bool = False) -> list[Row]:
        """Return rows of every window up to `to` for which the current redundancy is not written yet.

        `trusts` holds the worst trust of each space, as an index of TRUST_ORDER. With `again`, later windows
        that were written with an older state get new rows, too.
        """
        rows: list[Row] = []
        for number, gauge in enumerate(self._head.gauges):
            if gauge.written is None:
                continue
            furthest = to if gauge.furthest is None else gauge.furthest
            last = max(to, furthest) if again else to
            first = gauge.written + 1
            if not again:
                first = max(first, last - CARRY_LIMIT + 1)
            last = min(last, first + CARRY_LIMIT - 1)
            for window in range(first, last + 1):
                rows.append(self._redundancy_row(number, gauge, window, trusts))
            if last >= first:
                gauge.written = last
                gauge.furthest = last if gauge.furthest is None else max(last, gauge.furthest)
        return rows

    def _redundancy_row(self, number: int, gauge: FleetGauge, window: int, trusts: dict[int, int]) -> Row:
        gauges, scale = self.gauges, self._head.one_in
        space = self._names.spaces.by_number[gauge.space]
        # Negative only if a damaged base named the wrong gauge: the tables take no negative numbers.
        owners = np.maximum(gauges.owners[number] * scale, 0).tolist()
        return RedundancyRow(
            window=windows.window_start(window),
            hash_domain=space.hash_domain,
            model=space.model,
            medium=gauge.medium,
            group_idx=space.group_idx,
            shard=self._shard,
            owners_1=owners[0],
            owners_2=owners[1],
            owners_3=owners[2],
            owners_4_7=owners[3],
            owners_8_up=owners[4],
            unique_tokens=max(0, int(gauges.unique[number]) * scale),
            physical_tokens=max(0, int(gauges.physical[number]) * scale),
            received_tokens=max(0, int(gauges.received[number]) * scale),
            sampled_one_in=scale,
            trust=TRUST_ORDER[trusts.get(space.number, 0)],
            version=int(gauges.versions[number]),
        )
