"""The rows that a source must have, as they follow from its recount."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pipeline.verify import times
from pipeline.verify.replica.health import Health
from pipeline.verify.replica.objects import Uses
from pipeline.verify.replica.source import SourceRecount
from pipeline.verify.replica.trust import Since
from schemas.events import EngineCounters
from schemas.rows import EngineCountersRow, FlowRow, ObjectsRow, OccupancyRow, SourceRow, StreamHealthRow

ReplicaRow = OccupancyRow | FlowRow | StreamHealthRow | ObjectsRow | EngineCountersRow | SourceRow
_SCRAPED = {*EngineCounters.__struct_fields__} & {*EngineCountersRow.__struct_fields__}
"""Figures of a scrape that its row has, under the same names."""


def open_window(source: SourceRecount) -> Iterator[ReplicaRow]:
    """Yield the rows of the open window, as it would be if it ended now."""
    if source.window is not None:
        yield from occupancy(source, source.window)
        yield from flow(source, source.window)
        yield from objects(source, source.window, carried=False)
        yield health(source, source.window, carried=False)


def carried_window(source: SourceRecount, window: int) -> Iterator[ReplicaRow]:
    """Yield the rows of a window after the open one, in which nothing came: what is held stays."""
    yield from occupancy(source, window)
    yield from objects(source, window, carried=True)
    yield health(source, window, carried=True)


def occupancy(source: SourceRecount, window: int) -> Iterator[OccupancyRow]:
    """Yield what is held at the end of a window."""
    for medium, group, held in source.held(times.end_of(window)):
        pool = source.pools[medium, group]
        yield OccupancyRow(
            window=times.start_of(window),
            medium=medium,
            group_idx=group,
            **held._asdict(),
            capacity_blocks=_room(source, medium, held.block_size),
            store_only=pool.store_only,
            at_least=pool.at_least,
            **_of_source(source, source.trust.of(medium)),
        )


def _room(source: SourceRecount, medium: str, block_size: int) -> int:
    if medium == "gpu":
        return source.capacity_blocks
    return source.cpu_capacity_tokens // block_size if medium == "cpu" and block_size else 0


def flow(source: SourceRecount, window: int) -> Iterator[FlowRow]:
    """Yield what came and went, for every pool in which anything did."""
    for (medium, group), pool in source.pools.items():
        if not pool.flow.nothing():
            yield FlowRow(
                window=times.start_of(window),
                medium=medium,
                group_idx=group,
                **vars(pool.flow),
                **_of_source(source, source.trust.had(medium)),
            )


def objects(source: SourceRecount, window: int, *, carried: bool) -> Iterator[ObjectsRow]:
    """Yield the objects held and how they were used, for every medium and group that ever had any."""
    for (medium, group), held, size in source.objects.held():
        yield ObjectsRow(
            window=times.start_of(window),
            medium=medium,
            group_idx=group,
            objects=held,
            bytes=size,
            capacity_bytes=source.objects.capacities.get(medium, 0),
            **vars(Uses() if carried else source.objects.uses[medium, group]),
            **_of_source(source, source.trust.of(medium) if carried else source.trust.had(medium)),
        )


def health(source: SourceRecount, window: int, *, carried: bool) -> StreamHealthRow:
    """Return the health of the stream; in carried windows nothing happened."""
    too_many = source.drift_blocks(times.end_of(window))
    drift_since = source.drift_began(window if source.window is None else source.window, too_many)
    media = source.media()
    return StreamHealthRow(
        window=times.start_of(window),
        **vars(Health() if carried else source.health),
        incarnation=source.life.incarnation,
        last_seq=source.life.last_seq,
        last_batch_at=_moment(source.life.last_batch_at),
        connected=source.disconnected_from is None or window < source.disconnected_from,
        drift_blocks=too_many,
        drift_since=None if drift_since is None else times.start_of(drift_since),
        **_of_source(source, source.trust.of_all(media) if carried else source.trust.had_all(media)),
    )


def counters(source: SourceRecount, said: EngineCounters, at: float) -> EngineCountersRow:
    """Return a scrape as it came."""
    return EngineCountersRow(
        time=times.moment(at),
        model=source.life.model,
        replica=source.replica,
        dp_rank=source.dp_rank,
        **{figure: getattr(said, figure) for figure in _SCRAPED},
        version=source.version,
    )


def life(source: SourceRecount) -> Iterator[SourceRow]:
    """Yield the row of the present session, once its first batch is known."""
    session = source.life
    if session.first_seq is not None:
        yield SourceRow(
            incarnation=session.incarnation,
            opened_at=times.moment(session.opened_at),
            closed_at=_moment(session.closed_at),
            closed_reason=session.closed_reason,
            engine=session.engine,
            wire_era=session.wire_era,
            hash_domain=session.hash_domain,
            tenant=session.tenant,
            role=source.role,
            first_seq=session.first_seq,
            last_seq=session.last_seq,
            remarks=session.remarks,
            **_of_source(source, source.trust.of_all(source.media())),
        )


def _of_source(source: SourceRecount, trust: Since) -> dict[str, Any]:
    """Return the columns that every row with a trust has."""
    return {
        "model": source.life.model,
        "replica": source.replica,
        "dp_rank": source.dp_rank,
        "trust": trust.trust,
        "trust_since": times.moment(trust.at),
        "version": source.version,
    }


def _moment(at: float | None) -> datetime | None:
    return None if at is None else times.moment(at)
