"""A residency record split into pieces: the changes of one source and pool, with what they have in common."""

from __future__ import annotations

import functools
import hashlib
from itertools import chain
from typing import NamedTuple

import numpy as np

from pipeline.fleet.hashing.comparison import HashComparison, PieceOrigins
from pipeline.fleet.kernel.columns import Pieces
from pipeline.fleet.kernel.event_order import PieceOrder
from pipeline.fleet.kernel.packed_columns import PackedColumns, packed_columns
from pipeline.fleet.pool_names import NamedPool, PoolNames
from pipeline.fleet.registry import Sources
from schemas.residency import ResidencyRecord
from schemas.trust import TRUST_ORDER

_TRUST_NUMBERS = {trust: number for number, trust in enumerate(TRUST_ORDER)}
TRANSFER_SECONDS = 2.0
"""Changes of sources that receive KV count this much later than they happened: what arrives by transfer was
filled at its origin just before, and clocks of engines differ."""
_Row = tuple[int, int, bool, int, int, float, bool, NamedPool, tuple[int, ...]]
"""Source, salt of its runs, whether it receives KV, number of its engine session, trust, until when losses
may be unknown, alone, pool, lineages."""


class RecordPieces(NamedTuple):
    """The pieces of one record, as needed by the code that reads each part."""

    packed: PackedColumns
    order: PieceOrder
    followed: Pieces
    origins: PieceOrigins


class PieceSplitter:
    """Splits records into pieces, and registers the sources and pools that they name."""

    def __init__(
        self, sources: Sources, pools: PoolNames, comparison: HashComparison, *, horizon: float
    ) -> None:
        """Losses are remembered for `horizon` seconds."""
        self._sources = sources
        self._pools = pools
        self._comparison = comparison
        self._horizon = horizon

    def pieces(self, record: ResidencyRecord) -> RecordPieces | None:
        """Return the pieces of a record; None if nothing changed."""
        parts = [part for said in record.sources for part in said.changes if part.hashes]
        packed = packed_columns(parts)
        rows = self._rows(record, packed)
        if not rows:
            return None
        numbers, salts_of_runs, receives, lives, trusts, unsure_until, alone, pools, lineages = zip(
            *rows, strict=True
        )
        spaces, bits, medium_keys, gauges, cells, _ = zip(*pools, strict=True)
        known = np.array([len(each) for each in lineages], np.int64)
        of_source, of_life = np.array(numbers, np.int64), np.array(lives, np.int64)
        return RecordPieces(
            packed,
            PieceOrder(
                of_source,
                of_life,
                np.array([space.constant for space in spaces], np.uint64),
                np.array([*chain.from_iterable(lineages)], np.uint16),
                np.cumsum(known) - known,
                TRANSFER_SECONDS * np.array(receives, np.float64),
                np.array(salts_of_runs, np.uint64),
            ),
            Pieces(
                of_source.astype(np.uint16),
                of_life.astype(np.uint16),
                np.array(bits, np.uint8),
                np.array(trusts, np.uint8),
                np.array(medium_keys, np.uint64),
                np.array(gauges, np.int32),
                np.array(cells, np.int32),
                np.array(unsure_until, np.float64),
                np.array(alone, np.uint8),
                np.array(receives, np.uint8),
            ),
            PieceOrigins(
                of_source,
                np.array([space.number for space in spaces], np.uint32),
                np.array([space.salt for space in spaces], np.uint64),
            ),
        )

    def _rows(self, record: ResidencyRecord, packed: PackedColumns) -> list[_Row]:
        """Return a row per piece; `unsure_until` is as it was before the record's changes of that source."""
        rows: list[_Row] = []
        latest = iter(_latest_times(packed))
        for said in record.sources:
            name = said.replica, said.dp_rank
            source = self._sources.of(*name)
            number = source.number
            if said.incarnation > source.incarnation:
                source.incarnation = said.incarnation
                source.life += 1
            source.trust = _TRUST_NUMBERS[said.trust]
            alone = self._comparison.is_alone(number, said)
            unsure_until = source.unsure_until
            for part in said.changes:
                if part.hashes:
                    pool = self._pools.of(number, said, part)
                    lineages = self._pools.lineages(pool, part)
                    rows.append(
                        (
                            number,
                            salt_of_runs(*name, said.incarnation, part.group_idx) if said.receives else 0,
                            said.receives,
                            source.life,
                            source.trust,
                            unsure_until,
                            alone,
                            pool,
                            lineages,
                        )
                    )
                    source.seen = max(source.seen, next(latest))
            if source.trust:
                source.unsure_until = max(source.unsure_until, source.seen + self._horizon)
        return rows


@functools.lru_cache(1 << 12)
def salt_of_runs(replica: str, dp_rank: int, incarnation: int, group_idx: int) -> int:
    """Return 64 bits that distinguish the runs of a session and group from those of others, in all shards.

    Two connectors that read one engine announce the same blocks at the same time, as two sessions; so do the
    groups of a hybrid engine, whose hashes are the same.
    """
    named = f"{replica}\0{dp_rank}\0{incarnation}\0{group_idx}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), "little")


def latest_time(record: ResidencyRecord) -> float:
    """Return the latest time of the changes in a record; -inf without any."""
    times = b"".join(part.times for said in record.sources for part in said.changes)
    return float(np.frombuffer(times, "<f8").max(initial=-np.inf))


def _latest_times(packed: PackedColumns) -> list[float]:
    """Return the latest time of each piece."""
    if not len(packed.lengths):
        return []
    begin = np.cumsum(packed.lengths) - packed.lengths
    latest: list[float] = np.maximum.reduceat(packed.times, begin).tolist()
    return latest
