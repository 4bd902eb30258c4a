"""Who holds what, over all partitions: questions to the table."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.index.answers import Answer, InstanceMatch, RankMatch, SourceState
from pipeline.index.holdings.holdings import NO_BESIDE
from pipeline.index.holdings.matching import WHOLE, Beside
from pipeline.index.question import Question, QuestionRefused, hashes_of
from pipeline.index.sources import Sources
from pipeline.index.tiers import window_of
from pipeline.residency.counting.block_table import Hashes
from pipeline.residency.granularity.two_sizes import GranularPool
from pipeline.residency.source import SourceResidency

MOST_ROWS = 50_000
"""Replicas and ranks in the answers to one question."""


class Index:
    """Answers from what the partitions have brought into the table."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def scopes_of(self, question: Question) -> Any:
        """Return which scopes a question is about. Raises QuestionRefused."""
        found = self._sources.scopes.asked_for(
            question.asked_model, hash_domain=question.hash_domain, tenant=question.tenant_id
        )
        if found is None:
            asked = (question.asked_model, question.hash_domain or question.tenant_id)
            raise QuestionRefused("unknown_model", f"no replica of model {asked[0]!r} in {asked[1]!r}")
        return found

    def answer(self, question: Question, scopes: Any, chain: list[Any], now: float) -> Answer:
        """Return who holds a beginning of a prompt; `now` is in seconds since the epoch.

        Raises QuestionRefused.
        """
        hashes = hashes_of(chain)
        if not len(hashes):
            return Answer({}, {})
        holdings = self._sources.holdings
        beside = self._beside(scopes, hashes) if self._sources.granular else NO_BESIDE
        rows = holdings.match(scopes, hashes, beside, question.block_size)
        if question.limit and len(rows) > question.limit:
            rows = rows[np.argsort(-rows["disk_tokens"], kind="stable")]
        return self._told(question, rows.tolist(), now)

    def _told(self, question: Question, rows: list[tuple[Any, ...]], now: float) -> Answer:
        instances: dict[str, InstanceMatch] = {}
        scores: dict[str, dict[str, int]] = {}
        wanted, lora = question.instance_id, question.lora_name
        for number, _, _, blocks, gpu, cpu, disk, unsure in rows:
            source = self._sources.by_number[number]
            residency = source.residency
            assert residency is not None
            head = residency.head
            replica = head.replica
            if (wanted is not None and replica != wanted) or (lora is not None and lora not in head.loras):
                continue
            known = instances.get(replica)
            if known is None and question.limit and len(instances) == question.limit:
                continue
            match = RankMatch(
                gpu,
                cpu,
                disk,
                disk,
                blocks,
                source.trust(),
                _event_age(residency, now),
                unsure,
            )
            rank = str(head.dp_rank)
            if known is None:
                dp = {rank: gpu}
                instances[replica] = InstanceMatch(disk, gpu, cpu, disk, dp, {rank: match})
                scores[replica] = dp
            else:
                known.gpu, known.cpu = max(known.gpu, gpu), max(known.cpu, cpu)
                known.longest_matched = known.disk = max(known.disk, disk)
                known.dp[rank] = gpu
                known.ranks[rank] = match
        return Answer(instances, scores)

    def _beside(self, scopes: Any, hashes: Hashes) -> Beside:
        """Return what pools of two granularities hold, which the table does not know."""
        found: list[tuple[int, int, int]] = []
        chain: list[int] = hashes.tolist()
        numbers = self._sources.scopes
        for source in self._sources.granular.values():
            if not scopes[numbers.number(source.scope)]:
                continue
            for number, pool in source.granular.items():
                found += _held(number, pool, chain)
        if not found:
            return NO_BESIDE
        columns = np.array(found, np.int64).T
        return Beside(*(np.ascontiguousarray(column) for column in columns))

    def replicas(self, now: float) -> list[SourceState]:
        """Return the state of every source, by replica and rank."""
        told = [
            _state(source.residency, now)
            for source in self._sources.by_number.values()
            if source.residency is not None
        ]
        return sorted(told, key=lambda one: (one.replica, one.dp_rank))


def _held(number: int, pool: GranularPool, chain: list[int]) -> list[tuple[int, int, int]]:
    """Return (pool, position, size) of the blocks of a chain that a pool holds, if they can matter."""
    if window_of(pool.head) == WHOLE and pool.size_of(chain[0]) is None:
        return []
    sizes = ((at, pool.size_of(block)) for at, block in enumerate(chain))
    return [(number, at, size) for at, size in sizes if size is not None]


def _event_age(residency: SourceResidency, now: float) -> float | None:
    at = residency.head.connectivity.last_batch_at
    return None if at is None else round(max(0.0, now - at), 3)


def _state(residency: SourceResidency, now: float) -> SourceState:
    head = residency.head
    blocks: dict[str, int] = {}
    for pool in residency.pools:
        held = pool.blocks if isinstance(pool, GranularPool) else sum(pool.head.blocks)
        blocks[pool.head.medium] = blocks.get(pool.head.medium, 0) + held
    return SourceState(
        head.replica,
        head.dp_rank,
        head.model,
        head.hash_domain,
        head.tenant,
        head.engine,
        residency.overall_trust().trust,
        _event_age(residency, now),
        head.closed_reason if head.closed_at is not None else "",
        blocks,
    )
