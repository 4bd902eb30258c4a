"""The state of a source as checkpoint records, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pipeline.residency import histogram
from pipeline.residency.contact import Contact
from pipeline.residency.drift import Drift
from pipeline.residency.flow import Flow
from pipeline.residency.granularity import GranularPool
from pipeline.residency.health import Health
from pipeline.residency.pool import Pool
from pipeline.residency.source import SourceResidency
from pipeline.residency.table import Entries
from pipeline.residency.trust import Since, SourceTrust
from schemas.checkpoints import (
    BASE,
    DELTA_SLOTS,
    HEAD,
    FlowState,
    PoolEntries,
    PoolHead,
    PoolsRecord,
    SourceHead,
    TrustState,
    slot_key,
)
from schemas.settings import Worker
from schemas.trust import Trust

RECORD_ENTRIES = 200_000
"""Entries per checkpoint record: 34 bytes each, well below the topic's 8 MB bound."""

_Entries = tuple[Pool, tuple[npt.NDArray[Any], ...]]
"""A pool and the columns of `schemas.checkpoints.PoolEntries`."""

_encode = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(SourceHead).decode
_decode_pools = msgspec.msgpack.Decoder(PoolsRecord).decode


class CheckpointCorrupt(Exception):
    """The checkpoint topic does not hold the records that a head refers to."""

    def __init__(self, replica: str, dp_rank: int, missing: str) -> None:
        super().__init__(replica, dp_rank, missing)
        self.replica = replica
        self.dp_rank = dp_rank
        self.missing = missing

    def __str__(self) -> str:
        return f"record {self.missing} of {self.replica}/{self.dp_rank} is missing or of another checkpoint"


class SourceSnapshots:
    """Writes the checkpoints of one source: a base now and then, deltas between."""

    def __init__(self, source: SourceResidency, *, epoch: int = 0, deltas: int = 0) -> None:
        self._source = source
        self._epoch = epoch
        self._deltas = deltas
        self._delta_entries = 0

    def cut(self) -> list[tuple[bytes, bytes]]:
        """Return the (key, value) records that bring the checkpoint up to date."""
        source = self._source
        source.pools.settle()
        records: list[tuple[bytes, bytes]] = []
        changed = [pool for pool in source.pools if isinstance(pool, Pool) and pool.touched]
        touched = sum(pool.touched for pool in changed)
        resident = sum(sum(pool.blocks) for pool in source.pools if isinstance(pool, Pool))
        if (
            source.pools.needs_base
            or self._deltas + 1 + touched // RECORD_ENTRIES > DELTA_SLOTS
            or self._delta_entries + touched > resident // 2 + 4096
        ):
            self._epoch += 1
            self._deltas = self._delta_entries = 0
            source.pools.needs_base = False
            every = [pool for pool in source.pools if isinstance(pool, Pool)]
            base, *rest = _records([_all_entries(pool) for pool in every])
            records.append((self._key(BASE), _encode(PoolsRecord(self._epoch, base))))
        else:
            self._delta_entries += touched
            rest = _records([part for pool in changed for part in _changed_entries(pool)]) if changed else []
        for pools in rest:
            self._deltas += 1
            records.append((self._key(self._deltas), _encode(PoolsRecord(self._epoch, pools))))
        for pool in changed:
            pool.saved()
        records.append((self._key(HEAD), _encode(self._head())))
        return records

    def _key(self, slot: str | int) -> bytes:
        return slot_key(self._source.replica, self._source.dp_rank, slot)

    def _head(self) -> SourceHead:
        source = self._source
        return SourceHead(
            replica=source.replica,
            dp_rank=source.dp_rank,
            model=source.model,
            hash_domain=source.hash_domain,
            tenant=source.tenant,
            incarnation=source.incarnation,
            epoch=self._epoch,
            deltas=self._deltas,
            first_seq=source.first_seq,
            last_seq=source.last_seq,
            opened_at=source.opened_at,
            closed_at=source.closed_at,
            closed_reason=source.closed_reason,
            engine=source.engine,
            wire_era=source.wire_era,
            trust=TrustState(*source.trust.general),
            trust_by_medium={medium: TrustState(*since) for medium, since in source.trust.by_medium.items()},
            trust_passed={medium: TrustState(*since) for medium, since in source.trust.passed.items()},
            window=source.window,
            carried_to=source.rows.carried_to,
            version=source.version,
            health=source.health,
            contact=source.contact,
            drift=source.drift,
            capacity_blocks=source.capacity_blocks,
            pools=[_pool_head(pool) for pool in source.pools],
            written_to=source.rows.written_to,
            passed_over=source.passed_over,
        )


def restore(
    head: bytes, latest: Mapping[bytes, bytes], settings: Worker
) -> tuple[SourceResidency, SourceSnapshots]:
    """Return a source as it was when `head` was cut; `latest` holds the last record of every key.

    Raises CheckpointCorrupt when a record that the head refers to is missing or of another epoch.
    """
    state = _decode_head(head)
    source = SourceResidency(state.replica, state.dp_rank, settings)
    for name in (
        "model",
        "hash_domain",
        "tenant",
        "incarnation",
        "first_seq",
        "last_seq",
        "opened_at",
        "closed_at",
        "closed_reason",
        "engine",
        "wire_era",
        "window",
        "version",
        "capacity_blocks",
        "passed_over",
    ):
        setattr(source, name, getattr(state, name))
    passed = {medium: _since(trust) for medium, trust in state.trust_passed.items()}
    source.trust = SourceTrust(_since(state.trust), passed)
    source.trust.by_medium = {medium: _since(trust) for medium, trust in state.trust_by_medium.items()}
    source.rows.carried_to, source.rows.written_to = state.carried_to, state.written_to
    source.health = Health(**msgspec.structs.asdict(state.health))
    source.contact = Contact(**msgspec.structs.asdict(state.contact))
    source.drift = Drift(**msgspec.structs.asdict(state.drift))
    source.pools.needs_base = False
    for pool_head in state.pools:
        _restore_pool(source, pool_head, settings)
    for slot in (BASE, *range(1, state.deltas + 1)):
        value = latest.get(slot_key(state.replica, state.dp_rank, slot))
        record = _decode_pools(value) if value is not None else None
        if record is None or record.epoch != state.epoch:
            raise CheckpointCorrupt(state.replica, state.dp_rank, str(slot))
        for entries in record.pools:
            pool = source.pools[entries.medium, entries.group_idx]
            if isinstance(pool, Pool):
                _restore_entries(pool, entries)
    return source, SourceSnapshots(source, epoch=state.epoch, deltas=state.deltas)


def _since(state: TrustState) -> Since:
    return Since(msgspec.convert(state.trust, type=Trust), state.since)


def _pool_head(pool: Pool | GranularPool) -> PoolHead:
    flow = FlowState(pool.flow.counts(), histogram.trimmed(pool.flow.lifetimes))
    if isinstance(pool, GranularPool):
        return PoolHead(pool.medium, pool.group_idx, [], [], [], [], [], flow, granular=pool.saved())
    return PoolHead(
        pool.medium,
        pool.group_idx,
        pool.block_sizes,
        pool.entries,
        pool.blocks,
        pool.removed,
        pool.several_hashes,
        flow,
        store_only=pool.store_only,
        removes=pool.removes,
        early_stores=pool.early_stores,
        other_sizes=pool.other_sizes(),
        stored_tokens=pool.stored_tokens,
    )


def _restore_pool(source: SourceResidency, head: PoolHead, settings: Worker) -> None:
    pool: Pool | GranularPool
    if head.granular:
        pool = GranularPool.restored(
            head.medium, head.group_idx, head.granular, settings.fine_block_age_seconds
        )
    else:
        pool = Pool(head.medium, head.group_idx)
        for size, several in zip(head.block_sizes, head.several_hashes, strict=True):
            pool.note(size, several=several)
        pool.entries, pool.blocks, pool.removed = head.entries, head.blocks, head.removed
        pool.stored_tokens = head.stored_tokens
        pool.store_only, pool.removes, pool.early_stores = head.store_only, head.removes, head.early_stores
        pool.restore_other_sizes(head.other_sizes)
    pool.flow = Flow.restored(head.flow.counts, head.flow.lifetimes)
    source.pools.adopt(pool)


def _records(pools: list[_Entries]) -> list[list[PoolEntries]]:
    """Return the pools of one or more records, none of more than RECORD_ENTRIES entries.

    Entries are set one by one when they are read, so what one record cannot hold may follow in deltas.
    """
    records: list[list[PoolEntries]] = [[]]
    room = RECORD_ENTRIES
    for pool, columns in pools:
        for start in range(0, len(columns[0]), RECORD_ENTRIES):
            part = [column[start : start + RECORD_ENTRIES] for column in columns]
            if len(part[0]) > room:
                records.append([])
                room = RECORD_ENTRIES
            room -= len(part[0])
            packed = (column.tobytes() for column in part)
            records[-1].append(PoolEntries(pool.medium, pool.group_idx, *packed))
    return records


def _all_entries(pool: Pool) -> _Entries:
    return _columns(pool, pool.table.live())


def _changed_entries(pool: Pool) -> Iterator[_Entries]:
    """Yield what went since the last checkpoint, then what is there and was written since."""
    gone = np.concatenate(pool.gone) if pool.gone else np.empty(0, np.uint64)
    nothing = np.zeros(len(gone), "<u4")
    yield (
        pool,
        (
            gone.astype("<u8"),
            nothing,
            nothing.astype("<f8"),
            nothing,
            nothing.astype("<u8"),
            nothing.astype("<u2"),
        ),
    )
    yield _columns(pool, pool.table.changed())


def _columns(pool: Pool, entries: Entries) -> _Entries:
    return pool, (
        entries["hash"].astype("<u8"),
        entries["copies"].astype("<i4"),
        entries["birth"].astype("<f8"),
        pool.sizes_of(entries["size_code"]).astype("<u4"),
        entries["root"].astype("<u8"),
        entries["depth"].astype("<u2"),
    )


def _restore_entries(pool: Pool, entries: PoolEntries) -> None:
    sizes = np.frombuffer(entries.block_sizes, "<u4")
    codes = np.zeros(len(sizes), np.uint16)
    for code, size in enumerate(pool.block_sizes):
        codes[sizes == size] = code
    count = len(sizes)
    # Copies, because what is compiled takes arrays that can be written.
    pool.put(
        np.frombuffer(entries.hashes, "<u8").astype(np.uint64),
        np.frombuffer(entries.copies, "<i4").astype(np.int32),
        np.frombuffer(entries.births, "<f8").astype(np.float64),
        codes,
        # What was written before there were chains has none.
        np.frombuffer(entries.roots, "<u8").astype(np.uint64)
        if entries.roots
        else np.zeros(count, np.uint64),
        np.frombuffer(entries.depths, "<u2").astype(np.uint16)
        if entries.depths
        else np.zeros(count, np.uint16),
    )
