"""State of one shard: applies residency records in the order of the log, and gives rows and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass, field

import numpy as np

from pipeline.fleet.arranging import Piece, arranged
from pipeline.fleet.columns import Changes, Pieces
from pipeline.fleet.comparing import Comparing
from pipeline.fleet.counts import COUNTERS, HEAD, NO_WINDOW, TAIL, USED_BLOCKS, USED_PAIRS, WINDOW, Clock
from pipeline.fleet.following import CLOCK_MOVED, DONE, GPU, REFILLS_FULL, follow
from pipeline.fleet.hash_groups import HashGroups
from pipeline.fleet.hot_prefixes import hot_prefixes
from pipeline.fleet.index import (
    BLOCK,
    I64,
    LOAD,
    LOSS,
    PAIR,
    SMALLEST,
    SPARSE,
    U32,
    U64,
    capacity_for,
    copy_blocks,
    copy_pairs,
    doubled,
)
from pipeline.fleet.keys import constant_of
from pipeline.fleet.open_windows import OpenWindows
from pipeline.fleet.refills import make_room, no_refills
from pipeline.fleet.registry import Lineages, Media, Sources, Space, Spaces
from pipeline.fleet.snapshot import Bases, restore
from pipeline.residency import windows
from schemas.residency import ResidencyRecord, SourceChanges
from schemas.rows import Row
from schemas.settings import Fleet
from schemas.trust import TRUST_ORDER

FORGET_SECONDS = 86_400.0
"""A source without blocks, remembered losses or changes for so long is forgotten."""
CHUNK = 8192
"""Changes followed at once: room is made for all of them before."""
_MEDIUM_CONSTANTS = 1 << 32
"""Where the constants of media begin among those of `keys.constant_of`."""


@dataclass(frozen=True)
class Cut:
    """One consistent checkpoint: everything that follows from the records before `next_offset`."""

    next_offset: int
    dirty: bool
    rows: list[Row] = field(default_factory=list)
    checkpoints: list[tuple[bytes, bytes]] = field(default_factory=list)


def one_in(rate: float) -> int:
    """Return n so that one block in n is the nearest to the sample rate."""
    return max(1, round(1 / rate))


class FleetState:
    """Who holds and who lost which block of a shard.

    Reads no clock and does no IO: the same records give the same rows, however often it was restarted.
    """

    def __init__(self, shard: int, settings: Fleet, *, carry_seconds: float) -> None:
        """Redundancy is carried forward for `carry_seconds` after the last change."""
        self.shard = shard
        self.next_offset = 0
        self.registry = Sources()
        self.spaces = Spaces()
        self.lineages = Lineages()
        self.media = Media()
        self.open = OpenWindows(shard, one_in(settings.sample_rate))
        self.blocks = np.zeros(SMALLEST, BLOCK)
        self.pairs = np.zeros(SMALLEST, PAIR)
        self.losses = np.zeros(SMALLEST, LOSS)
        self.clock = Clock(
            np.zeros(COUNTERS, np.int64), np.zeros(1), np.zeros(16, np.int64), np.zeros(16, np.int64)
        )
        self.clock.counters[WINDOW] = NO_WINDOW
        self.refills = no_refills()
        self.comparing = Comparing(settings.compare_after)
        self._hash_groups = HashGroups(shard, self.comparing, self.registry)
        self.followed = 0
        """Changes followed so far; with sampling those of the sample."""
        self.seen = 0
        """Changes read since this object was made."""
        self._settings = settings
        self._carry_windows = int(carry_seconds // windows.WINDOW_SECONDS)
        self._rows: list[Row] = []
        self._applied = 0
        """Offset of the last record."""
        self._saved_offset = 0
        self._bases = Bases(self)

    @classmethod
    def restore(
        cls, shard: int, settings: Fleet, *, carry_seconds: float, latest: Mapping[bytes, bytes]
    ) -> FleetState:
        """Return the state of the last base; a new one when there is none.

        `latest` holds the last committed value of every key of the checkpoint partition. Raises
        CheckpointCorrupt when records are missing.
        """
        state = cls(shard, settings, carry_seconds=carry_seconds)
        epoch = restore(state, latest)
        state._saved_offset = state.next_offset
        state._bases = Bases(state, epoch=epoch)
        return state

    @property
    def sources(self) -> Sized:
        """Return the sources known."""
        return self.registry.by_name

    def skip(self, offset: int) -> None:
        """Leave out the record at `offset`, which could not be decoded."""
        self.next_offset = offset + 1

    def apply(self, offset: int, record: ResidencyRecord) -> None:
        """Apply the record at `offset`."""
        self.next_offset = offset + 1
        self._applied = offset
        builder = _Building(self)
        for source in record.sources:
            builder.add(source)
        if not builder.pieces:
            return
        self.seen += sum(len(piece.changes.kinds) for piece in builder.pieces)
        changes = arranged(builder.pieces, self.open.one_in)
        self._follow(changes, builder.columns(), offset, widest=2 if builder.lower_media else 1)
        self.comparing.meet(changes, *builder.origins())

    def _follow(self, changes: Changes, pieces: Pieces, offset: int, *, widest: int) -> None:
        total = len(changes.keys)
        self.followed += total
        at = 0
        while at < total:
            end = min(at + CHUNK, total)
            self._make_room(end - at, widest)
            why = -1
            while why != DONE:
                at, why = follow(
                    self.blocks,
                    self.pairs,
                    self.losses,
                    self.open.cells,
                    self.open.gauges,
                    self.clock,
                    self.refills,
                    changes,
                    pieces,
                    at,
                    end,
                    offset,
                    self._settings.horizon_seconds,
                    self._settings.max_ghosts,
                )
                if why == DONE:
                    break
                if why == REFILLS_FULL:
                    self.refills = make_room(self.refills)
                    continue
                window = windows.window_of(changes.times[at])
                if why == CLOCK_MOVED:
                    self._window_begins(window, offset)
                else:
                    self._rows += self.open.cell_moved(int(pieces.cells[changes.pieces[at]]), window)
        self.open.gauges_changed(int(self.clock.counters[WINDOW]))

    def _window_begins(self, window: int, offset: int) -> None:
        counters = self.clock.counters
        before = int(counters[WINDOW])
        if before != NO_WINDOW:
            self.open.gauges_changed(before)
            trusts = self._trusts()
            self._rows += self.open.redundancy(window - 1, trusts)
            self._rows += hot_prefixes(
                self.blocks,
                self.refills,
                self.lineages,
                trusts,
                window=before,
                shard=self.shard,
                listed=self._settings.hot_prefixes,
                one_in=self.open.one_in,
                version=offset,
            )
            self.refills = no_refills()
        counters[WINDOW] = window

    def room_for_source(self, number: int) -> None:
        """Make sure that a source of this number can be counted."""
        while number >= len(self.clock.pairs_of_source):
            self.clock = self.clock._replace(
                pairs_of_source=doubled(self.clock.pairs_of_source),
                clears_of_source=doubled(self.clock.clears_of_source),
            )

    def _trusts(self) -> dict[int, int]:
        """Return the worst trust of the sources that are in the tables, per space."""
        worst: dict[int, int] = {}
        pairs = self.clock.pairs_of_source
        for source in self.registry.by_name.values():
            if source.trust and pairs[source.number]:
                for space in source.spaces:
                    worst[space] = max(worst.get(space, 0), source.trust)
        return worst

    def _make_room(self, coming: int, widest: int) -> None:
        counters = self.clock.counters
        used = int(counters[USED_BLOCKS])
        capacity = len(self.blocks)
        if used + coming * widest > capacity * LOAD or _sparse(used, coming, capacity):
            blocks = np.zeros(capacity_for(used + coming * widest), BLOCK)
            copy_blocks(self.blocks, blocks)
            self.blocks = blocks
        used = int(counters[USED_PAIRS])
        capacity = len(self.pairs)
        if used + coming > capacity * LOAD or _sparse(used, coming, capacity):
            pairs = np.zeros(capacity_for(used + coming), PAIR)
            copy_pairs(self.pairs, pairs)
            self.pairs = pairs
        remembered = int(counters[TAIL] - counters[HEAD])
        needed = min(remembered + coming, self._settings.max_ghosts)
        capacity = len(self.losses)
        if needed > capacity or _sparse(remembered, coming, capacity):
            self._move_losses(max(SMALLEST, 1 << (needed - 1).bit_length()))

    def _move_losses(self, capacity: int) -> None:
        counters = self.clock.counters
        numbers = np.arange(counters[HEAD], counters[TAIL])
        losses = np.zeros(capacity, LOSS)
        old, new = numbers & (len(self.losses) - 1), numbers & (capacity - 1)
        losses[new] = self.losses[old]
        self.losses = losses

    def cut(self, now: float) -> Cut:
        """Return what must be saved at wall clock `now`; from here on it counts as saved."""
        rows, self._rows = self._rows, []
        rows += self.open.open_fills()
        window = int(self.clock.counters[WINDOW])
        if window != NO_WINDOW:
            carried = min(windows.window_of(now), window + self._carry_windows)
            rows += self.open.redundancy(max(window, carried), self._trusts(), again=True)
        rows += self._hash_groups.changed(self._applied)
        self._forget_sources()
        checkpoints = self._bases.take(now)
        if not rows and not checkpoints and self.next_offset == self._saved_offset:
            return Cut(self.next_offset, dirty=False)
        self._saved_offset = self.next_offset
        return Cut(self.next_offset, dirty=True, rows=rows, checkpoints=checkpoints)

    def _forget_sources(self) -> None:
        """Give back the numbers of sources that are gone; their last rows have been taken."""
        pairs = self.clock.pairs_of_source
        before = self.clock.time[0] - FORGET_SECONDS
        gone = [
            source
            for source in self.registry.by_name.values()
            if source.seen < before and not pairs[source.number]
        ]
        for source in gone:
            self.open.forget(source)
            self.comparing.forget(source.number)
            self.clock.clears_of_source[source.number] = 0
            self.registry.forget(source)

    @property
    def bytes_allocated(self) -> int:
        """Return the size of the tables in bytes."""
        return self.blocks.nbytes + self.pairs.nbytes + self.losses.nbytes


def _sparse(used: int, coming: int, capacity: int) -> bool:
    return capacity > 16 * CHUNK and used + coming < capacity * SPARSE


class _Building:
    """Collects what the changes of a record have in common, source by source."""

    def __init__(self, state: FleetState) -> None:
        self._state = state
        self.pieces: list[Piece] = []
        self.lower_media = False
        self._rows: list[tuple[int, int, int, int, int, int, int, float, int]] = []
        self._spaces: list[Space] = []

    def add(self, changes: SourceChanges) -> None:
        """Add a source's changes."""
        state = self._state
        source = state.registry.of(changes.replica, changes.dp_rank)
        if changes.incarnation > source.incarnation:
            source.incarnation = changes.incarnation
            source.life += 1
        source.trust = TRUST_ORDER.index(changes.trust)
        state.room_for_source(source.number)
        alone = state.comparing.says(source.number, changes)
        unsure_until = source.unsure_until
        for part in changes.changes:
            if not part.hashes:
                continue
            space = state.spaces.of(changes.hash_domain, changes.model, part.group_idx)
            self._spaces.append(space)
            bit = state.media.bit(part.medium, store_only=part.store_only)
            gauge = state.open.gauge(space, part.medium)
            self.lower_media |= bit != GPU
            lineages = [state.lineages.of(space, lora).number for lora in ("", *part.loras)]
            self.pieces.append(Piece(part, source.number, source.life, space.constant, lineages))
            self._rows.append(
                (
                    source.number,
                    source.life & 0xFFFF,
                    bit,
                    source.trust,
                    constant_of(_MEDIUM_CONSTANTS + gauge),
                    gauge,
                    state.open.cell(source, space),
                    unsure_until,
                    alone,
                )
            )
            source.seen = max(source.seen, float(np.frombuffer(part.times, "<f8").max()))
        if source.trust:
            source.unsure_until = source.seen + state._settings.horizon_seconds

    def origins(self) -> tuple[I64, U32, U64]:
        """Return number of the source, number of the space and what keeps spaces apart of each piece."""
        return (
            np.array([piece.source for piece in self.pieces], np.int64),
            np.array([space.number for space in self._spaces], np.uint32),
            np.array([space.salt for space in self._spaces], np.uint64),
        )

    def columns(self) -> Pieces:
        """Return them as columns."""
        sources, lives, bits, trusts, keys, gauges, cells, unsure, alone = zip(*self._rows, strict=True)
        return Pieces(
            np.array(sources, np.uint16),
            np.array(lives, np.uint16),
            np.array(bits, np.uint8),
            np.array(trusts, np.uint8),
            np.array(keys, np.uint64),
            np.array(gauges, np.int32),
            np.array(cells, np.int32),
            np.array(unsure, np.float64),
            np.array(alone, np.uint8),
        )
