"""The rows that a source must have, as they follow from its recount."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeline.verify import times
from pipeline.verify.replica.flow import Flow
from pipeline.verify.replica.objects import Uses
from pipeline.verify.replica.source import Health, SourceRecount
from schemas.events import EngineCounters
from schemas.rows import EngineCountersRow, FlowRow, ObjectsRow, OccupancyRow, SourceRow, StreamHealthRow

ReplicaRow = OccupancyRow | FlowRow | StreamHealthRow | ObjectsRow | EngineCountersRow | SourceRow


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
        trust = source.trust.of(medium)
        yield OccupancyRow(
            window=times.start_of(window),
            model=source.life.model,
            replica=source.replica,
            dp_rank=source.dp_rank,
            medium=medium,
            group_idx=group,
            block_size=held.block_size,
            entries=held.entries,
            blocks=held.blocks,
            tokens=held.tokens,
            covered_blocks=held.covered_blocks,
            capacity_blocks=_room(source, medium, held.block_size),
            store_only=source.pools[medium, group].store_only,
            at_least=source.pools[medium, group].at_least,
            trust=trust.trust,
            trust_since=times.moment(trust.at),
            version=source.version,
        )


def _room(source: SourceRecount, medium: str, block_size: int) -> int:
    if medium == "gpu":
        return source.capacity_blocks
    return source.cpu_capacity_tokens // block_size if medium == "cpu" and block_size else 0


def flow(source: SourceRecount, window: int) -> Iterator[FlowRow]:
    """Yield what came and went, for every pool in which anything did."""
    for (medium, group), pool in source.pools.items():
        if pool.flow.nothing():
            continue
        trust = source.trust.had(medium)
        yield FlowRow(
            window=times.start_of(window),
            model=source.life.model,
            replica=source.replica,
            dp_rank=source.dp_rank,
            medium=medium,
            group_idx=group,
            **_figures(pool.flow),
            trust=trust.trust,
            trust_since=times.moment(trust.at),
            version=source.version,
        )


def objects(source: SourceRecount, window: int, *, carried: bool) -> Iterator[ObjectsRow]:
    """Yield the objects held and how they were used, for every medium and group that ever had any."""
    for (medium, group), held, size in source.objects.held():
        trust = source.trust.of(medium) if carried else source.trust.had(medium)
        yield ObjectsRow(
            window=times.start_of(window),
            model=source.life.model,
            replica=source.replica,
            dp_rank=source.dp_rank,
            medium=medium,
            group_idx=group,
            objects=held,
            bytes=size,
            capacity_bytes=source.objects.capacities.get(medium, 0),
            **_figures(Uses() if carried else source.objects.uses[medium, group]),
            trust=trust.trust,
            trust_since=times.moment(trust.at),
            version=source.version,
        )


def health(source: SourceRecount, window: int, *, carried: bool) -> StreamHealthRow:
    """Return the health of the stream; in carried windows nothing happened."""
    too_many = source.drift_blocks(times.end_of(window))
    drift_since = source.drift_began(window if source.window is None else source.window, too_many)
    trust = source.trust.of_all(source.media()) if carried else source.trust.had_all(source.media())
    return StreamHealthRow(
        window=times.start_of(window),
        model=source.life.model,
        replica=source.replica,
        dp_rank=source.dp_rank,
        **_figures(Health() if carried else source.health),
        incarnation=source.life.incarnation,
        last_seq=source.life.last_seq,
        last_batch_at=None if source.life.last_batch_at is None else times.moment(source.life.last_batch_at),
        connected=source.disconnected_from is None or window < source.disconnected_from,
        drift_blocks=too_many,
        drift_since=None if drift_since is None else times.start_of(drift_since),
        trust=trust.trust,
        trust_since=times.moment(trust.at),
        version=source.version,
    )


def counters(source: SourceRecount, said: EngineCounters, at: float) -> EngineCountersRow:
    """Return a scrape as it came."""
    return EngineCountersRow(
        time=times.moment(at),
        model=source.life.model,
        replica=source.replica,
        dp_rank=source.dp_rank,
        prefix_cache_queries=said.prefix_cache_queries,
        prefix_cache_hits=said.prefix_cache_hits,
        external_queries=said.external_queries,
        external_hits=said.external_hits,
        capacity_blocks=said.capacity_blocks,
        block_size=said.block_size,
        kv_cache_usage=said.kv_cache_usage,
        prefill_seconds=said.prefill_seconds,
        prefill_tokens=said.prefill_tokens,
        cpu_capacity_tokens=said.cpu_capacity_tokens,
        computed_tokens=said.computed_tokens,
        transferred_tokens=said.transferred_tokens,
        reloaded_tokens=said.reloaded_tokens,
        generation_tokens=said.generation_tokens,
        version=source.version,
    )


def life(source: SourceRecount) -> Iterator[SourceRow]:
    """Yield the row of the present session, once its first batch is known."""
    if source.life.first_seq is None:
        return
    trust = source.trust.of_all(source.media())
    yield SourceRow(
        model=source.life.model,
        replica=source.replica,
        dp_rank=source.dp_rank,
        incarnation=source.life.incarnation,
        opened_at=times.moment(source.life.opened_at),
        closed_at=None if source.life.closed_at is None else times.moment(source.life.closed_at),
        closed_reason=source.life.closed_reason,
        engine=source.life.engine,
        wire_era=source.life.wire_era,
        hash_domain=source.life.hash_domain,
        tenant=source.life.tenant,
        role=source.role,
        first_seq=source.life.first_seq,
        last_seq=source.life.last_seq,
        remarks=source.life.remarks,
        trust=trust.trust,
        trust_since=times.moment(trust.at),
        version=source.version,
    )


def _figures(of: Flow | Uses | Health) -> dict[str, Any]:
    return dict(vars(of))
