"""A residency record as pieces: the changes of one source and pool, and what they have in common."""

from __future__ import annotations

import numpy as np

from pipeline.fleet.hashing.comparison import Comparing, PieceOrigins
from pipeline.fleet.index import Index
from pipeline.fleet.kernel.columns import Pieces
from pipeline.fleet.kernel.event_order import Piece
from pipeline.fleet.kernel.follow import GPU
from pipeline.fleet.kernel.keys import constant_of
from pipeline.fleet.open_windows import OpenWindows
from pipeline.fleet.registry import Names, Space
from schemas.residency import SourceChanges
from schemas.trust import TRUST_ORDER

_MEDIUM_CONSTANTS = 1 << 32
"""Where the constants of media begin among those of `keys.constant_of`."""


class RecordPieces:
    """The pieces of one record, and what the changes of each have in common."""

    def __init__(
        self, names: Names, index: Index, open_windows: OpenWindows, comparing: Comparing, *, horizon: float
    ) -> None:
        """Adds new names to all of these; losses are remembered for `horizon` seconds."""
        self._names = names
        self._index = index
        self._open = open_windows
        self._comparing = comparing
        self._horizon = horizon
        self.pieces: list[Piece] = []
        self.lower_media = False
        self._rows: list[tuple[int, int, int, int, int, int, int, float, int]] = []
        self._spaces: list[Space] = []

    def add(self, changes: SourceChanges) -> None:
        """Add a source's changes."""
        names = self._names
        source = names.sources.of(changes.replica, changes.dp_rank)
        if changes.incarnation > source.incarnation:
            source.incarnation = changes.incarnation
            source.life += 1
        source.trust = TRUST_ORDER.index(changes.trust)
        self._index.room_for_source(source.number)
        alone = self._comparing.is_alone(source.number, changes)
        unsure_until = source.unsure_until
        for part in changes.changes:
            if not part.hashes:
                continue
            space = names.spaces.of(changes.hash_domain, changes.model, part.group_idx)
            self._spaces.append(space)
            bit = names.media.bit(part.medium, store_only=part.store_only)
            gauge = self._open.gauge(space.number, part.medium)
            self.lower_media |= bit != GPU
            lineages = [names.lineages.of(space, lora).number for lora in ("", *part.loras)]
            self.pieces.append(Piece(part, source.number, source.life, space.constant, lineages))
            self._rows.append(
                (
                    source.number,
                    source.life & 0xFFFF,
                    bit,
                    source.trust,
                    constant_of(_MEDIUM_CONSTANTS + gauge),
                    gauge,
                    self._open.cell(source.number, space.number),
                    unsure_until,
                    alone,
                )
            )
            source.seen = max(source.seen, float(np.frombuffer(part.times, "<f8").max()))
        if source.trust:
            source.unsure_until = source.seen + self._horizon

    def origins(self) -> PieceOrigins:
        """Return where the pieces come from."""
        return PieceOrigins(
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
