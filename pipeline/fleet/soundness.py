"""Whether the head and the tables of a base fit together, so that compiled loops find what they look for.

The types of `schemas.fleet_checkpoints` bound single values. This module checks lengths, numbers that refer
to rows of other tables, and sums on which two tables must agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.errors import CheckpointDamaged
from pipeline.fleet.causes import CAUSES, NEEDED_BUCKETS
from pipeline.fleet.hashing.comparison import FIRST, FIRSTS
from pipeline.fleet.kernel.counts import (
    COUNTERS,
    HEAD,
    LOSSES,
    NO_WINDOW,
    TAIL,
    USED_BLOCKS,
    USED_PAIRS,
    WINDOW,
)
from pipeline.fleet.kernel.fill_cause import NO_BUCKET
from pipeline.fleet.kernel.refills import MOST_REFILLS, REFILL
from pipeline.fleet.kernel.sums import put_keys, sum_pairs
from pipeline.fleet.kernel.tables import HAS_LOSS, KEY, MEDIA_BITS, capacity_for
from pipeline.fleet.kernel.transfers import ANSWER, FILL, TRANSFER
from pipeline.fleet.open_windows import cells_of, gauges_of
from pipeline.fleet.packing import Packed, Rows, rows_in, rows_of
from pipeline.fleet.pieces import TRANSFER_SECONDS
from pipeline.fleet.snapshot import Base, load
from pipeline.fleet.undecided import saved_in
from pipeline.fleet.waiting import unpacked
from pipeline.reading.windows import WINDOW_SECONDS
from pipeline.residency.histogram import BUCKETS
from schemas.fleet_checkpoints import FleetHead
from schemas.residency import KINDS, LATEST_CHANGE
from schemas.trust import TRUST_ORDER

_I64 = np.dtype("<i8")
_F64 = np.dtype("<f8")
_LATEST_WINDOW = LATEST_CHANGE // WINDOW_SECONDS

Array = npt.NDArray[Any]


def sound_base(latest: Mapping[bytes, bytes], one_in: int) -> Base:
    """Return the base that the last values of all keys make, of one block in `one_in`.

    It is empty if there is none, or one of another sample rate: the log is read from its beginning then.
    Raises what `load` raises; CheckpointDamaged and ValueError for a base whose parts do not fit together.
    """
    base = load(latest)
    if base is not None and (found := _contradiction(base)) is not None:
        raise CheckpointDamaged("the base", found)
    if base is None or base.head.one_in != one_in:
        # The epoch goes on, so that parts of the old base are not taken for parts of the next one.
        return Base(FleetHead(one_in, epoch=0 if base is None else base.head.epoch), {}, rows_in({}))
    return base


def _contradiction(base: Base) -> str | None:
    """Return what of a base contradicts the rest, None if nothing. Raises ValueError for wrong lengths."""
    head, tables, rows = base
    checks = (
        ("names", _names_fit(head)),
        ("cells", _cells_fit(head, tables)),
        ("gauges", _as_many(gauges_of(0), tables.get("gauges", ()), len(head.gauges))),
        ("labels", _labels_fit(head, tables)),
        ("refills", _refills_fit(head, tables)),
        ("blocks", _blocks_fit(head, tables, rows)),
        ("fills", _fills_fit(head, tables)),
        ("waiting changes", _waiting_fit(head, tables)),
        ("undecided changes", saved_in(tables) is not None),
    )
    return next((f"{what} do not fit" for what, fit in checks if not fit), None)


def _names_fit(head: FleetHead) -> bool:
    sources, spaces = head.sources, len(head.spaces)
    cells = [(cell.source, cell.space) for cell in head.cells if cell is not None]
    gauges = [(gauge.space, gauge.medium) for gauge in head.gauges]
    return (
        all(source is None or source.number == number for number, source in enumerate(sources))
        and all(source < len(sources) and sources[source] is not None for source, _ in cells)
        and all(space < spaces for space in (*(cell[1] for cell in cells), *(gauge[0] for gauge in gauges)))
        and all(lineage.space < spaces for lineage in head.lineages)
        and len(set(cells)) == len(cells)
        and len(set(gauges)) == len(gauges)
        and head.media.get("gpu", 0) == 0
        and all(number < len(sources) for number in head.standings)
    )


def _as_many(table: Sequence[Array], packed: Sequence[bytes], rows: int) -> bool:
    """Return whether every column of a table like `table` is packed with `rows` rows."""
    if not packed:
        return rows == 0
    widths = [column.dtype.itemsize * int(np.prod(column.shape[1:])) for column in table]
    return [len(column) for column in packed] == [width * rows for width in widths]


def _cells_fit(head: FleetHead, tables: Packed) -> bool:
    packed = tables.get("cells", ())
    if not _as_many(cells_of(0), packed, len(head.cells)):
        return False
    if not packed:
        return True
    windows, versions = (np.frombuffer(column, _I64) for column in packed[:2])
    trusts = np.frombuffer(packed[2], np.uint8)
    figures = [np.frombuffer(column, _I64) for column in packed[4:]]
    return bool(
        ((windows == NO_WINDOW) | ((windows >= 0) & (windows <= _LATEST_WINDOW))).all()
        and (versions >= 0).all()
        and (trusts < len(TRUST_ORDER)).all()
        and all((column >= 0).all() for column in figures)
    )


def _labels_fit(head: FleetHead, tables: Packed) -> bool:
    count = len(head.labels)
    parents, members = _columns(tables.get("labels", (b"", b"")), 2)
    labels, returns = _columns(tables.get("origins", (b"", b"")), 2)
    slots, *fields = tables.get("firsts", (b"",))
    at, firsts = np.frombuffer(slots, _I64), rows_of(FIRST, fields)
    return bool(
        len(parents) == len(members) == count
        # A label is joined only to an older one, so that the path of parents ends.
        and ((parents >= 0) & (parents <= np.arange(count))).all()
        and len(labels) == len(returns)
        and ((labels >= -1) & (labels < count)).all()
        and (members >= 0).all()
        and (returns >= 0).all()
        and all(number < len(labels) and labels[number] >= 0 for number in head.standings)
        and len(at) == len(firsts)
        and ((at >= 0) & (at < FIRSTS)).all()
        and (firsts["label"] < count).all()
        and (firsts["space"] < len(head.spaces)).all()
    )


def _refills_fit(head: FleetHead, tables: Packed) -> bool:
    packed = tables.get("refills", ())
    if not packed:
        return True
    *fields, totals = packed
    rows, (used, forgotten) = rows_of(REFILL, fields), np.frombuffer(totals, _I64)
    return bool(
        len(rows) == used <= MOST_REFILLS
        and forgotten >= 0
        and rows["root"].all()
        and (rows["lineage"] < len(head.lineages)).all()
    )


def _waiting_fit(head: FleetHead, tables: Packed) -> bool:
    """Return whether waiting changes refer only to what there is."""
    waiting = tables.get("waiting", ())
    if not waiting:
        return True
    changes, of = unpacked(waiting, tables.get("waiting_pieces", ()))
    pieces, due, times, count = changes["piece"], changes["due"], changes["time"], len(of.named)
    of_pieces: list[Array] = [*of.followed, *of.origins]
    if not (
        all(len(column) == count for column in of_pieces)
        # Piece after piece, and each has changes.
        and np.array_equal(np.unique(pieces), np.arange(count))
        and (pieces[1:] >= pieces[:-1]).all()
        and ((due[1:] >= due[:-1]) | (pieces[1:] != pieces[:-1])).all()
    ):
        return False
    sources, cells, gauges = of.origins.sources, of.followed.cells, of.followed.gauges
    known = [source is not None for source in head.sources]
    return bool(
        np.isin(changes["kind"], bytearray(KINDS)).all()
        and ((times >= 0) & (times <= LATEST_CHANGE)).all()
        and ((due >= 0) & (due <= LATEST_CHANGE + TRANSFER_SECONDS)).all()
        and changes["key"].all()
        and (changes["lineage"] < max(1, len(head.lineages))).all()
        and all(0 <= number < len(known) and known[number] for number in sources.tolist())
        and all(number in head.standings for number in sources.tolist())
        and (of.followed.sources == sources).all()
        and all(0 <= cell < len(head.cells) and head.cells[cell] is not None for cell in cells.tolist())
        and ((gauges >= 0) & (gauges < len(head.gauges))).all()
        and (of.followed.bits < MEDIA_BITS).all()
        and (of.followed.trusts < len(TRUST_ORDER)).all()
        and (of.origins.spaces < len(head.spaces)).all()
    )


def _fills_fit(head: FleetHead, tables: Packed) -> bool:
    """Return whether waiting fills would count in cells and buckets that there are."""
    fills = rows_of(FILL, tables.get("fills", ()))
    cells = np.array([cell is not None for cell in head.cells], np.bool_)
    return bool(
        ((fills["cell"] >= 0) & (fills["cell"] < len(cells))).all()
        and cells[fills["cell"]].all()
        and (fills["cause"] < len(CAUSES)).all()
        and ((fills["regret"] >= NO_BUCKET) & (fills["regret"] < BUCKETS)).all()
        and ((fills["needed"] >= NO_BUCKET) & (fills["needed"] < NEEDED_BUCKETS)).all()
        and (fills["lineage"] < max(1, len(head.lineages))).all()
        and (fills["source"] < len(head.sources)).all()
        and (fills["trust"] < len(TRUST_ORDER)).all()
        and (fills["state"] <= TRANSFER).all()
        and ((fills["time"] >= 0) & (fills["time"] <= LATEST_CHANGE)).all()
        and (rows_of(ANSWER, tables.get("answers", ()))["known"] <= 1).all()
    )


def _blocks_fit(head: FleetHead, tables: Packed, rows: Rows) -> bool:
    """Return whether blocks, pairs and losses fit together, and fit the clock's counters."""
    blocks, pairs, losses = rows
    packed = tables.get("clock", ())
    if not packed:
        return not (len(blocks) or len(pairs) or len(losses))
    counters, (time,), pairs_of_source, clears_of_source = (
        np.frombuffer(column, kind) for column, kind in zip(packed, (_I64, _F64, _I64, _I64), strict=True)
    )
    sources = len(pairs_of_source)
    if not (
        len(counters) == COUNTERS
        and 0 <= time <= LATEST_CHANGE
        and (counters[WINDOW] == NO_WINDOW or 0 <= counters[WINDOW] <= _LATEST_WINDOW)
        and 0 <= counters[HEAD] <= counters[TAIL] == counters[HEAD] + len(losses)
        and counters[USED_BLOCKS] == len(blocks)
        and counters[USED_PAIRS] == len(pairs)
        and len(head.sources) <= sources == len(clears_of_source)
        and (pairs["source"] < sources).all()
        and (losses["source"] < sources).all()
        and (losses["received"] <= 1).all()
        and (blocks["lineage"] < max(1, len(head.lineages))).all()
    ):
        return False
    keys, of_source = np.zeros(capacity_for(len(blocks)), KEY), np.zeros(sources, np.int64)
    if not put_keys(blocks, keys):
        return False
    wrong, held, announced, lost, received, received_announced = sum_pairs(
        pairs, keys, int(counters[HEAD]), len(losses), of_source
    )
    return bool(
        not wrong
        and np.array_equal(of_source, pairs_of_source)
        and counters[LOSSES] == lost == int(blocks["evicted"].sum()) + int(blocks["cleared"].sum())
        and blocks["owners"].sum() == held
        and blocks["holders"].sum() == announced
        and blocks["received"].sum() == received
        and blocks["received_holders"].sum() == received_announced
        and (blocks["received"] <= blocks["owners"]).all()
        and (blocks["received_holders"] <= blocks["holders"]).all()
        and (blocks["received_evicted"] <= blocks["evicted"]).all()
        and blocks["received_evicted"].sum() == _received_evicted(pairs, losses, int(counters[HEAD]))
        and _gauges_fit(blocks, tables)
        and ((losses["time"] >= 0) & (losses["time"] <= LATEST_CHANGE)).all()
    )


def _received_evicted(pairs: Array, losses: Array, first: int) -> int:
    """Return how many remembered evictions are of blocks that came while their source received KV."""
    lost = pairs["position"][pairs["media"] & HAS_LOSS != 0] - np.uint32(first & 0xFFFFFFFF)
    return int(((losses["received"] != 0) & (losses["cleared"] == 0))[lost].sum())


def _gauges_fit(blocks: Array, tables: Packed) -> bool:
    """Return whether no gauge is below zero, and all add up to what the blocks have."""
    packed = tables.get("gauges", ())
    if not packed:
        return not len(blocks) or not blocks["owners"].any()
    owners, unique, physical, received, versions = (np.frombuffer(column, _I64) for column in packed[:5])
    held = blocks[blocks["owners"] > 0]
    sizes = held["size"].astype(np.int64)
    return bool(
        (owners >= 0).all()
        and (unique >= 0).all()
        and (versions >= 0).all()
        and (physical >= unique).all()
        and owners.sum() == len(held)
        and unique.sum() == sizes.sum()
        and physical.sum() == (sizes * held["owners"]).sum()
        and (received >= 0).all()
        and received.sum() == sizes[(held["received"] > 0) & (held["received"] < held["owners"])].sum()
    )


def _columns(packed: Sequence[bytes], count: int) -> list[Array]:
    if len(packed) != count:
        raise ValueError(f"{len(packed)} columns instead of {count}")
    return [np.frombuffer(column, _I64) for column in packed]
