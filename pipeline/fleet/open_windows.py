"""Figures of the windows that are still open: of every source's fills, and of redundancy as it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.fleet.causes import CAUSES, NEEDED_BUCKETS, REANNOUNCED
from pipeline.fleet.counts import NO_WINDOW, Cells, Gauges
from pipeline.fleet.index import doubled, mapped
from pipeline.fleet.registry import SourceFacts, Space
from pipeline.residency import histogram, windows
from schemas.rows import CapacityCurveRow, FillsRow, RedundancyRow, Row
from schemas.trust import TRUST_ORDER

CARRY_LIMIT = 360
"""Windows of unchanged redundancy written at once; the rest follows at the next checkpoint."""
_OWNERS = 5


@dataclass(slots=True, frozen=True)
class Cell:
    """Whose fills a cell counts."""

    source: SourceFacts
    space: Space


@dataclass(slots=True, frozen=True)
class Gauge:
    """Whose redundancy a gauge shows."""

    space: Space
    medium: str


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
    )


def gauges_of(capacity: int) -> Gauges:
    """Return gauges of nothing."""
    return Gauges(
        np.zeros((capacity, _OWNERS), np.int64),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.uint8),
    )


class OpenWindows:
    """Cells and gauges by number, and the rows they give."""

    def __init__(self, shard: int, one_in: int) -> None:
        self.cells = cells_of(16)
        self.gauges = gauges_of(4)
        self.cell_numbers: dict[tuple[int, int], int] = {}
        """(source, space) to cell."""
        self.gauge_numbers: dict[tuple[int, str], int] = {}
        """(space, medium) to gauge."""
        self.cell_facts: list[Cell | None] = []
        self.gauge_facts: list[Gauge] = []
        self.written: list[int] = []
        """Last window whose row shows the gauge as it is, per gauge."""
        self.furthest: list[int] = []
        """Last window for which a row was ever handed out, per gauge; those behind `written` are older."""
        self._free: list[int] = []
        self._shard = shard
        self.one_in = one_in

    def cell(self, source: SourceFacts, space: Space) -> int:
        """Return the cell of a source and space."""
        key = (source.number, space.number)
        number = self.cell_numbers.get(key)
        if number is None:
            if self._free:
                number = self._free.pop()
                self.cell_facts[number] = Cell(source, space)
            else:
                number = len(self.cell_facts)
                self.cell_facts.append(Cell(source, space))
                self._room_for_cells(number + 1)
            self.cell_numbers[key] = number
            source.spaces.add(space.number)
        return number

    def gauge(self, space: Space, medium: str) -> int:
        """Return the gauge of a space and medium."""
        key = (space.number, medium)
        number = self.gauge_numbers.get(key)
        if number is None:
            number = self.gauge_numbers[key] = len(self.gauge_facts)
            self.gauge_facts.append(Gauge(space, medium))
            self.written.append(NO_WINDOW)
            self.furthest.append(NO_WINDOW)
            if len(self.gauges.dirty) <= number:
                self.gauges = mapped(self.gauges, doubled)
        return number

    def _room_for_cells(self, count: int) -> None:
        while len(self.cells.dirty) < count:
            held = len(self.cells.dirty)
            self.cells = mapped(self.cells, doubled)
            self.cells.windows[held:] = NO_WINDOW

    def forget(self, source: SourceFacts) -> None:
        """Give the cells of a source back; their rows must have been taken."""
        for space in source.spaces:
            number = self.cell_numbers.pop((source.number, space))
            self.cell_facts[number] = None
            self._empty(number)
            self.cells.windows[number] = NO_WINDOW
            self._free.append(number)

    def cell_moved(self, number: int, window: int) -> list[Row]:
        """Begin a cell's next window; return the last rows of the one before."""
        rows = list(self._fill_rows(number)) if self.cells.dirty[number] else []
        self._empty(number)
        self.cells.windows[number] = window
        return rows

    def _empty(self, number: int) -> None:
        cells = self.cells
        for column in (cells.blocks, cells.tokens, cells.regret, cells.needed, cells.trusts, cells.dirty):
            column[number] = 0

    def open_fills(self) -> list[Row]:
        """Return rows of what changed in open windows since the last call."""
        numbers = np.flatnonzero(self.cells.dirty)
        rows = [row for number in numbers.tolist() for row in self._fill_rows(number)]
        self.cells.dirty[numbers] = 0
        return rows

    def _fill_rows(self, number: int) -> Iterator[Row]:
        facts = self.cell_facts[number]
        if facts is None:
            return
        cells, scale = self.cells, self.one_in
        blocks, tokens = (cells.blocks[number] * scale).tolist(), (cells.tokens[number] * scale).tolist()
        figures = {f"{cause}_blocks": blocks[place] for place, cause in enumerate(CAUSES)}
        figures |= {f"{cause}_tokens": tokens[place] for place, cause in enumerate(CAUSES)}
        window = windows.window_start(int(cells.windows[number]))
        space, source = facts.space, facts.source
        where: dict[str, Any] = {
            "window": window,
            "hash_domain": space.hash_domain,
            "model": space.model,
            "replica": source.replica,
            "dp_rank": source.dp_rank,
            "group_idx": space.group_idx,
            "shard": self._shard,
            "sampled_one_in": scale,
            "trust": TRUST_ORDER[cells.trusts[number]],
            "version": int(cells.versions[number]),
        }
        yield FillsRow(
            filled_blocks=sum(blocks[:REANNOUNCED]),
            filled_tokens=sum(tokens[:REANNOUNCED]),
            regret_hist=histogram.trimmed(cells.regret[number] * scale),
            **figures,
            **where,
        )
        needed = histogram.trimmed(cells.needed[number] * scale)
        if needed:
            yield CapacityCurveRow(needed_hist=needed, **where)

    def gauges_changed(self, window: int) -> None:
        """Note, after changes within the shard's `window`, which gauges they moved."""
        for number in np.flatnonzero(self.gauges.dirty).tolist():
            self.written[number] = window - 1
        self.gauges.dirty[:] = 0

    def redundancy(self, to: int, trusts: dict[int, int], *, again: bool = False) -> list[Row]:
        """Return the redundancy of every window up to `to` that was not written as it is now.

        `trusts` holds the worst trust of each space, as place in TRUST_ORDER. With `again`, rows of later
        windows that were written with an older state are written anew, too.
        """
        rows: list[Row] = []
        for number in range(len(self.gauge_facts)):
            if self.written[number] == NO_WINDOW:
                continue
            last = max(to, self.furthest[number]) if again else to
            first = (
                max(self.written[number] + 1, last - CARRY_LIMIT + 1)
                if not again
                else (self.written[number] + 1)
            )
            last = min(last, first + CARRY_LIMIT - 1)
            for window in range(first, last + 1):
                rows.append(self._redundancy_row(number, window, trusts))
            if last >= first:
                self.written[number] = last
                self.furthest[number] = max(last, self.furthest[number])
        return rows

    def _redundancy_row(self, number: int, window: int, trusts: dict[int, int]) -> Row:
        gauges, scale = self.gauges, self.one_in
        space, medium = self.gauge_facts[number].space, self.gauge_facts[number].medium
        owners = (gauges.owners[number] * scale).tolist()
        return RedundancyRow(
            window=windows.window_start(window),
            hash_domain=space.hash_domain,
            model=space.model,
            medium=medium,
            group_idx=space.group_idx,
            shard=self._shard,
            owners_1=owners[0],
            owners_2=owners[1],
            owners_3=owners[2],
            owners_4_7=owners[3],
            owners_8_up=owners[4],
            unique_tokens=int(gauges.unique[number]) * scale,
            physical_tokens=int(gauges.physical[number]) * scale,
            sampled_one_in=scale,
            trust=TRUST_ORDER[trusts.get(space.number, 0)],
            version=int(gauges.versions[number]),
        )
