"""The state of a shard as checkpoint records, and back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from pipeline.fleet.comparing_snapshot import compared, restore_compared
from pipeline.fleet.counts import GHOSTS, HEAD, NO_WINDOW, TAIL, USED_BLOCKS, USED_PAIRS, WINDOW
from pipeline.fleet.index import BLOCK, GHOST, LOSS, PAIR, capacity_for, copy_blocks, copy_pairs
from pipeline.fleet.refills import FORGOTTEN, REFILL, refills_of
from pipeline.fleet.registry import SourceFacts
from pipeline.residency import histogram
from pipeline.residency.snapshot import CheckpointCorrupt
from schemas.fleet_checkpoints import (
    HEAD_KEY,
    FleetCell,
    FleetGauge,
    FleetHead,
    FleetLineage,
    FleetPart,
    FleetRefill,
    FleetSource,
    FleetSpace,
    part_key,
)

if TYPE_CHECKING:
    from pipeline.fleet.state import FleetState

PART_ROWS = 100_000
"""Rows per record: at most 40 bytes each, well below the topic's 8 MB bound."""
BYTES_AT_ONCE = 32 << 20
"""Of a base, per checkpoint: a transaction must not take long."""
MIN_CHANGES = 100_000
MAX_SECONDS = 60.0

_encode = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(FleetHead).decode
_decode_part = msgspec.msgpack.Decoder(FleetPart).decode


class BaseCorrupt(CheckpointCorrupt):
    """The checkpoint topic does not hold what a head refers to."""

    def __init__(self, missing: str) -> None:
        super().__init__("", 0, missing)

    def __str__(self) -> str:
        return f"{self.missing} of the base is missing or of another checkpoint"


class Bases:
    """Writes a base when enough changed since the last one, in portions."""

    def __init__(self, state: FleetState, *, epoch: int = 0) -> None:
        self._state = state
        self._epoch = epoch
        self._followed = state.followed
        self._made_at: float | None = None
        self._waiting: deque[tuple[bytes, bytes]] = deque()

    def take(self, now: float) -> list[tuple[bytes, bytes]]:
        """Return the (key, value) records to commit at wall clock `now`; often none."""
        if not self._waiting and self._due(now):
            self._waiting.extend(self._base())
            self._followed = self._state.followed
            self._made_at = now
        records: list[tuple[bytes, bytes]] = []
        size = 0
        while self._waiting and size < BYTES_AT_ONCE:
            records.append(self._waiting.popleft())
            size += len(records[-1][1])
        return records

    def _due(self, now: float) -> bool:
        if self._made_at is None:
            self._made_at = now
        changes = self._state.followed - self._followed
        counters = self._state.clock.counters
        entries = int(counters[USED_BLOCKS] + counters[USED_PAIRS] + counters[TAIL] - counters[HEAD])
        if changes >= max(MIN_CHANGES, entries // 2):
            return True
        return changes > 0 and now - self._made_at >= MAX_SECONDS

    def _base(self) -> Iterator[tuple[bytes, bytes]]:
        state = self._state
        self._epoch += 1
        parts = [
            *_parts(self._epoch, "blocks", state.blocks[state.blocks["key"] != 0]),
            *_parts(self._epoch, "pairs", state.pairs[state.pairs["key"] != 0]),
            *_parts(self._epoch, "losses", state.losses[_remembered(state)]),
        ]
        for number, part in enumerate(parts):
            yield part_key(self._epoch, number), _encode(part)
        yield HEAD_KEY, _encode(_head(state, self._epoch, len(parts)))


def _remembered(state: FleetState) -> npt.NDArray[np.int64]:
    counters = state.clock.counters
    numbers: npt.NDArray[np.int64] = np.arange(counters[HEAD], counters[TAIL])
    return numbers & (len(state.losses) - 1)


def _parts(
    epoch: int, table: Literal["blocks", "pairs", "losses"], rows: npt.NDArray[Any]
) -> Iterator[FleetPart]:
    for start in range(0, len(rows), PART_ROWS):
        part = rows[start : start + PART_ROWS]
        packed = [part[name].tobytes() for name in part.dtype.names or ()]
        yield FleetPart(epoch, table, packed)


def _head(state: FleetState, epoch: int, parts: int) -> FleetHead:
    clock, opened = state.clock, state.open
    cells = [
        FleetCell(
            source,
            space,
            _window(opened.cells.windows[number]),
            int(opened.cells.versions[number]),
            int(opened.cells.trusts[number]),
            opened.cells.blocks[number].tolist(),
            opened.cells.tokens[number].tolist(),
            histogram.trimmed(opened.cells.regret[number]),
            histogram.trimmed(opened.cells.needed[number]),
        )
        for (source, space), number in opened.cell_numbers.items()
    ]
    gauges = [
        FleetGauge(
            facts.space.number,
            facts.medium,
            opened.gauges.owners[number].tolist(),
            int(opened.gauges.unique[number]),
            int(opened.gauges.physical[number]),
            int(opened.gauges.versions[number]),
            _window(opened.written[number]),
            _window(opened.furthest[number]),
        )
        for number, facts in enumerate(opened.gauge_facts)
    ]
    return FleetHead(
        next_offset=state.next_offset,
        epoch=epoch,
        parts=parts,
        one_in=opened.one_in,
        window=_window(clock.counters[WINDOW]),
        time=float(clock.time[0]),
        first_loss=int(clock.counters[HEAD]),
        followed=state.followed,
        sources=[
            FleetSource(
                source.number,
                source.replica,
                source.dp_rank,
                source.incarnation,
                source.life,
                source.trust,
                source.unsure_until,
                source.seen,
                int(clock.clears_of_source[source.number]),
            )
            for source in state.registry.by_name.values()
        ],
        spaces=[
            FleetSpace(space.hash_domain, space.model, space.group_idx) for space in state.spaces.by_number
        ],
        lineages=[FleetLineage(each.space.number, each.lora) for each in state.lineages.by_number],
        media=state.media.bits,
        cells=cells,
        gauges=gauges,
        refills=[FleetRefill(*row) for row in state.refills.rows[state.refills.rows["root"] != 0].tolist()],
        refills_forgotten=int(state.refills.totals[FORGOTTEN]),
        **compared(state.comparing),
    )


def _window(number: int | np.int64) -> int | None:
    return None if number == NO_WINDOW else int(number)


def _number(window: int | None) -> int:
    return NO_WINDOW if window is None else window


def restore(state: FleetState, latest: Mapping[bytes, bytes]) -> int:
    """Fill a new state with the base there is, if any; return its epoch.

    `latest` holds the last committed value of every key. A base of another sample rate is of no use: then the
    state stays new, and the log is read from its beginning. Raises BaseCorrupt when parts are missing.
    """
    value = latest.get(HEAD_KEY)
    if value is None:
        return 0
    head = _decode_head(value)
    if head.one_in != state.open.one_in:
        return head.epoch
    state.next_offset = head.next_offset
    state.followed = head.followed
    _restore_names(state, head)
    _restore_tables(state, head, latest)
    return head.epoch


def _restore_names(state: FleetState, head: FleetHead) -> None:
    for space in head.spaces:
        state.spaces.of(space.hash_domain, space.model, space.group_idx)
    for lineage in head.lineages:
        state.lineages.of(state.spaces.by_number[lineage.space], lineage.lora)
    for each in head.sources:
        source = SourceFacts(each.number, each.replica, each.dp_rank)
        source.incarnation, source.life, source.trust = each.incarnation, each.life, each.trust
        source.unsure_until, source.seen = each.unsure_until, each.seen
        state.registry.put(source)
        state.room_for_source(each.number)
        state.clock.clears_of_source[each.number] = each.first_loss_after_clear
    restore_compared(state.comparing, head)
    state.media.bits.update(head.media)
    opened = state.open
    for cell in head.cells:
        facts = state.registry.by_number[cell.source]
        if facts is None:
            raise BaseCorrupt(f"source {cell.source}")
        number = opened.cell(facts, state.spaces.by_number[cell.space])
        opened.cells.windows[number] = _number(cell.window)
        opened.cells.versions[number], opened.cells.trusts[number] = cell.version, cell.trust
        opened.cells.blocks[number], opened.cells.tokens[number] = cell.blocks, cell.tokens
        opened.cells.regret[number, : len(cell.regret)] = cell.regret
        opened.cells.needed[number, : len(cell.needed)] = cell.needed
    for gauge in head.gauges:
        number = opened.gauge(state.spaces.by_number[gauge.space], gauge.medium)
        opened.gauges.owners[number] = gauge.owners
        opened.gauges.unique[number], opened.gauges.physical[number] = gauge.unique, gauge.physical
        opened.gauges.versions[number] = gauge.version
        opened.written[number], opened.furthest[number] = _number(gauge.written), _number(gauge.furthest)


def _restore_tables(state: FleetState, head: FleetHead, latest: Mapping[bytes, bytes]) -> None:
    parts: dict[str, list[FleetPart]] = {"blocks": [], "pairs": [], "losses": []}
    for number in range(head.parts):
        value = latest.get(part_key(head.epoch, number))
        part = _decode_part(value) if value is not None else None
        if part is None or part.epoch != head.epoch:
            raise BaseCorrupt(f"part {number}")
        parts[part.table].append(part)
    blocks, pairs, losses = (
        _joined(kind, parts[table]) for table, kind in (("blocks", BLOCK), ("pairs", PAIR), ("losses", LOSS))
    )
    state.blocks = np.zeros(capacity_for(len(blocks)), BLOCK)
    copy_blocks(blocks, state.blocks)
    state.pairs = np.zeros(capacity_for(len(pairs)), PAIR)
    copy_pairs(pairs, state.pairs)
    refills = np.array([msgspec.structs.astuple(row) for row in head.refills], REFILL)
    state.refills = refills_of(refills, head.refills_forgotten)
    clock = state.clock
    counters = clock.counters
    counters[HEAD], counters[TAIL] = head.first_loss, head.first_loss + len(losses)
    state.losses = np.zeros(capacity_for(len(losses)), LOSS)
    state.losses[_remembered(state)] = losses
    counters[USED_BLOCKS], counters[USED_PAIRS] = len(blocks), len(pairs)
    counters[GHOSTS] = np.count_nonzero(pairs["media"] & GHOST)
    counters[WINDOW] = _number(head.window)
    clock.time[0] = head.time
    clock.pairs_of_source[:] = np.bincount(pairs["source"], minlength=len(clock.pairs_of_source))


def _joined(kind: np.dtype[Any], parts: list[FleetPart]) -> npt.NDArray[Any]:
    """Return the rows of all parts."""
    names = kind.names or ()
    # A base written before there were chains lacks the last columns.
    written = min((len(part.columns) for part in parts), default=len(names))
    columns = [
        np.frombuffer(b"".join(part.columns[number] for part in parts), kind[name])
        for number, name in enumerate(names[:written])
    ]
    rows = np.zeros(len(columns[0]), kind)
    for name, column in zip(names[:written], columns, strict=True):
        rows[name] = column
    return rows
