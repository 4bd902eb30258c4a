"""Faults that were found in the product once, or could have been, as patches of its code, one at a time.

They have to show when everything is at rest: what a later version of a row replaces does not.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

import connectors.order.log
import connectors.order.recovery
import connectors.order.sequence
import connectors.positions.keeper
import connectors.positions.ledger
import connectors.positions.reader
import pipeline.clickhouse.writer
import pipeline.fleet.snapshot
import pipeline.index.following.follower
import pipeline.kafka.checkpoints
import pipeline.reading.events_reader
import pipeline.residency.checkpoint.bases
import pipeline.residency.granularity.pairing
import pipeline.residency.granularity.two_sizes
import pipeline.residency.partition
import pipeline.worker.checkpoint.log
import pipeline.worker.checkpoint.rounds
import pipeline.worker.partition
import pipeline.worker.roles.fleet
import pipeline.worker.sink.sink
from connectors.order.states import Standing
from pipeline.errors import StoreUnavailable
from tests.simulation import clients


class Fault(NamedTuple):
    """A fault, and the room that it is in."""

    room: str
    plant: Callable[[], None]
    needs: str = ""
    """Without an action of this kind nothing can show it: schedules that have none are left out."""


def last_position_counts() -> None:
    """Two connectors read one engine: the position written last counts, not the furthest."""
    connectors.positions.reader.progress = lambda position: (0, 0)  # type: ignore[assignment]


def no_first_position() -> None:
    """A connector reads a source before its position is where a successor looks."""

    async def nothing(self: Any, positions: Any) -> None: ...

    connectors.positions.keeper.Positions._send_surely = nothing  # type: ignore[method-assign]


def a_later_incarnation_is_not_noticed() -> None:
    """A connector goes on with its incarnation after another one's, which readers leave out."""
    connectors.positions.ledger.Ledger.overtaken = lambda self, by: False  # type: ignore[method-assign]


def doubt_is_not_told() -> None:
    """An answer without the last batch confirms it, if nothing is missing."""
    connectors.order.log.SourceLog.doubt = lambda self, position, now: None  # type: ignore[method-assign]


def gaps_are_not_told() -> None:
    """What is finally lost leaves no notice."""
    connectors.order.log.SourceLog._lose = lambda self, *lost: None  # type: ignore[method-assign]


def nothing_is_a_duplicate() -> None:
    """A batch that comes again is taken for the first one of another life."""
    connectors.order.sequence.SequencePosition.taken = (  # type: ignore[method-assign]
        lambda self, seq, fingerprint: False
    )


def lives_are_not_compared() -> None:
    """An answer that begins with another batch than asked for is of the same life."""

    def compare(self: Any, request: Any, message: Any, now: float) -> None:
        self._standing, self._confirmed_arrivals = Standing.SURE, request.arrivals

    connectors.order.recovery.Recovery._compare_sessions = compare  # type: ignore[method-assign]


def residency_is_announced_twice() -> None:
    """A state without checkpoints says again what a former one had committed."""
    pipeline.residency.partition.PartitionState.note_committed = (  # type: ignore[method-assign]
        lambda self, offset: None
    )


def a_chain_bites_its_tail() -> None:
    """Fine blocks that are their own ancestors are a chain."""

    def chain(state: Any, tail: int, length: int) -> list[int] | None:
        blocks: list[int] = []
        at: int | None = tail
        while len(blocks) < length:
            fine = state.fine.get(at) if at is not None else None
            if at is None or fine is None:
                return None
            blocks.append(at)
            at = fine.parent
        return blocks

    for module in (pipeline.residency.granularity.pairing, pipeline.residency.granularity.two_sizes):
        if hasattr(module, "chain"):
            module.chain = chain


def removed_records_degrade_nothing() -> None:
    """Retention was faster than the worker, and trust stays."""
    pipeline.residency.partition.PartitionState.skip_removed = (  # type: ignore[method-assign]
        lambda self, beginning: self._advance(beginning - 1)
    )


def a_base_lacks_what_came_while_it_was_written() -> None:
    """What a source said since a base was begun counts as part of it."""
    bases = pipeline.residency.checkpoint.bases.SourceBases
    base = bases._base

    def whole(self: Any, next_offset: int, parts: int, head: bytes) -> Any:
        self._lacks_then = None
        return base(self, next_offset, parts, head)

    bases._base = whole  # type: ignore[method-assign]


def what_a_base_includes_counts_again() -> None:
    """Whoever continues applies to each source all records from the first one on that any source lacks."""
    load = pipeline.residency.partition.PartitionState.load

    def loaded(self: Any, latest: Any) -> None:
        load(self, latest)
        self._committed._included.clear()

    pipeline.residency.partition.PartitionState.load = loaded  # type: ignore[method-assign]


def former_owners_are_not_fenced() -> None:
    """Each owner of a partition has a transactional id of its own."""
    pipeline.worker.checkpoint.log.transactional_id = lambda group, topic, partition: (
        f"{group}.{topic}.{partition}.{secrets.token_hex(4)}"
    )


def checkpoints_of_aborted_transactions_count() -> None:
    """Checkpoints are read uncommitted."""
    pipeline.kafka.checkpoints.AIOKafkaConsumer = lambda **options: clients.Consumer(
        **options | {"isolation_level": "read_uncommitted"}
    )


def residency_of_aborted_transactions_counts() -> None:
    """The fleet agent reads uncommitted."""
    pipeline.worker.roles.fleet.FleetRole.committed = False


def rows_come_after_the_commit() -> None:
    """A round commits while its rows are on their way."""
    sink = pipeline.worker.sink.sink.Sink
    write = sink.write

    async def later(self: Any, rows: Any) -> None:
        self._later = asyncio.ensure_future(write(self, rows))

    sink.write = later  # type: ignore[method-assign]


def refused_inserts_are_acknowledged() -> None:
    """Rows that the store did not take, for want of room, count as written."""
    tables = pipeline.clickhouse.writer.Tables
    insert = tables.insert

    async def acknowledged(self: Any, rows: Any) -> None:
        try:
            await insert(self, rows)
        except StoreUnavailable:
            return

    tables.insert = acknowledged  # type: ignore[method-assign]


def bases_are_of_several_moments() -> None:
    """The head of a base of the fleet agent moves on while its tables are written."""

    def begin(self: Any, now: float) -> None:
        self._head.epoch += 1
        self._waiting = self._base(self._head, self._tables())
        self._followed, self._made_at, self._share = self._head.followed, now, 1.0

    pipeline.fleet.snapshot.Bases.begin = begin  # type: ignore[method-assign]


def clocks_are_not_bounded_by_the_log() -> None:
    """The agent believes a clock that is ahead of the log, and the recount does not.

    By this rule a clock that is set back can no longer take rows away from the recount, which was found once.
    """
    pipeline.reading.events_reader.bounded_by_log = lambda record, written_at, ahead: record


def an_index_begins_where_the_log_ends() -> None:
    """An index leaves out what came after the checkpoint that it loads."""
    follower = pipeline.index.following.follower.Follower
    restore = follower._restore

    async def skips(self: Any, state: Any, loaded: Any) -> None:
        await restore(self, state, loaded)
        state.next_offset = loaded.end

    follower._restore = skips  # type: ignore[method-assign]


FAULTS = {
    fault.plant.__name__.replace("_", "-"): fault
    for fault in (
        Fault("connectors/positions", last_position_counts, "overlap"),
        Fault("connectors/positions", no_first_position),
        Fault("connectors/positions", a_later_incarnation_is_not_noticed),
        Fault("connectors/order", gaps_are_not_told),
        Fault("connectors/order", doubt_is_not_told, "again"),
        Fault("connectors/order", nothing_is_a_duplicate),
        Fault("connectors/order", lives_are_not_compared),
        Fault("pipeline/residency", residency_is_announced_twice),
        Fault("pipeline/residency", a_chain_bites_its_tail),
        Fault("pipeline/residency", removed_records_degrade_nothing, "retain"),
        Fault("pipeline/residency", a_base_lacks_what_came_while_it_was_written),
        Fault("pipeline/residency", what_a_base_includes_counts_again),
        Fault("pipeline/worker", former_owners_are_not_fenced),
        Fault("pipeline/worker", checkpoints_of_aborted_transactions_count),
        Fault("pipeline/worker", residency_of_aborted_transactions_counts),
        Fault("pipeline/worker", rows_come_after_the_commit),
        Fault("pipeline/clickhouse", refused_inserts_are_acknowledged),
        Fault("pipeline/fleet", bases_are_of_several_moments),
        Fault("pipeline/index", an_index_begins_where_the_log_ends),
        Fault("pipeline/worker", clocks_are_not_bounded_by_the_log),
    )
}
"""By name."""
