"""Answers questions about who holds what, over all partitions, from the table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pipeline.index.answers import Answer, InstanceMatch, RankMatch, SourceState
from pipeline.index.following.sources import IndexedSource, Sources
from pipeline.index.holdings.holdings import NO_EXTRA_HOLDERS
from pipeline.index.holdings.matching import ExtraHolders
from pipeline.index.holdings.usable import NOT_NAMED, WHOLE
from pipeline.index.pools.tiers import window_of
from pipeline.index.questions.chains import Chain, Chains, chains_of
from pipeline.index.questions.question import About
from pipeline.index.questions.refused import QuestionRefused
from pipeline.reading.columns import Hashes
from pipeline.residency.granularity.two_sizes import GranularPool
from pipeline.residency.source import SourceResidency
from schemas.trust import Trust, worst


class Index:
    """Answers from what the partitions have brought into the table."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def scopes_of(self, about: About) -> Any:
        """Return a mask of the scopes that a question is about. Raises QuestionRefused for unknown names."""
        model, lora, replica = about.asked_model, about.lora_name, about.instance_id
        found = self._sources.scopes.asked_for(model, hash_domain=about.hash_domain, tenant=about.tenant_id)
        if found is None:
            raise QuestionRefused(
                "unknown_model", self._no_model(model, about.hash_domain or about.tenant_id)
            )
        if lora is not None and not any(source.uses(lora) for source in self._within(found)):
            raise QuestionRefused("unknown_adapter", f"no replica of model {model!r} used adapter {lora!r}")
        if replica is not None and replica not in self.trusts(found):
            raise QuestionRefused("unknown_replica", f"no replica {replica!r} of model {model!r}")
        return found

    def _no_model(self, model: str, where: str) -> str:
        """Return the error for an unknown model; many engines list adapters as models, so it may be one."""
        sources = self._sources.by_number.values()
        serving = sorted({source.scope.model for source in sources if source.names(model)})
        hint = f"; it is an adapter of {serving[0]!r}: ask for that, with lora_name" if serving else ""
        return f"no replica of model {model!r} in {where!r}{hint}"

    def _within(self, scopes: Any) -> Iterator[IndexedSource]:
        """Yield the sources in the scopes that a question is about."""
        number = self._sources.scopes.number
        for source in self._sources.by_number.values():
            if source.residency is not None and scopes[number(source.scope)]:
                yield source

    def answer(self, about: About, scopes: Any, chain: Chain, now: float) -> Answer:
        """Return who holds a beginning of one prompt, as `answers` does."""
        return self.answers(about, scopes, chains_of([chain]), now)[0]

    def answers(self, about: About, scopes: Any, chains: Chains, now: float) -> list[Answer]:
        """Return who holds a beginning of each prompt; `now` is in seconds since the epoch.

        Raises QuestionRefused.
        """
        hashes, ends = chains
        longest = int(np.diff(ends, prepend=0).max(initial=0))
        extra = self._extra_holders(scopes, hashes, ends) if self._sources.granular else NO_EXTRA_HOLDERS
        matches = self._sources.holdings.match(
            scopes, hashes, ends, extra, longest=longest, default_size=about.block_size
        )
        if about.limit:
            matches = matches[np.lexsort((-matches["disk_tokens"], matches["chain"]))]
        answers = [Answer({}, {}) for _ in ends]
        self._fill(answers, about, matches.tolist(), now)
        return answers

    def _fill(self, answers: list[Answer], about: About, rows: list[tuple[Any, ...]], now: float) -> None:
        wanted, lora, limit = about.instance_id, about.lora_name, about.limit
        of_match = self._sources.of_match
        for chain, number, _, _, blocks, gpu, cpu, disk, at_most, at_most_tokens, doubts in rows:
            source = of_match(number)
            replica, rank, trust, last_batch_at, doubted = source.facts or source.find_facts()
            if (wanted is not None and replica != wanted) or (lora is not None and not source.uses(lora)):
                continue
            instances = answers[chain].instances
            known = instances.get(replica)
            if known is None and limit and len(instances) == limit:
                continue
            match = RankMatch(
                gpu,
                cpu,
                disk,
                disk,
                blocks,
                trust,
                _age(last_batch_at, now),
                upper_bound=doubts & doubted != 0,
                lower_bound=at_most > blocks,
                at_most_tokens=at_most_tokens,
            )
            if known is None:
                dp = {rank: gpu}
                instances[replica] = InstanceMatch(disk, gpu, cpu, disk, dp, {rank: match})
                answers[chain].scores[replica] = dp
            else:
                known.gpu, known.cpu = max(known.gpu, gpu), max(known.cpu, cpu)
                known.longest_matched = known.disk = max(known.disk, disk)
                known.dp[rank] = gpu
                known.ranks[rank] = match

    def _extra_holders(self, scopes: Any, hashes: Hashes, ends: np.ndarray) -> ExtraHolders:
        """Return what pools of two granularities hold, which is not in the table."""
        numbers = self._sources.scopes
        pools = [
            (number, pool, _needs_first(pool, source))
            for source in self._sources.granular.values()
            if scopes[numbers.number(source.scope)]
            for number, pool in source.granular.items()
        ]
        found = [
            (chain, number, at, size)
            for chain, blocks in enumerate(np.split(hashes, ends[:-1]) if pools else ())
            for number, pool, needs_first in pools
            for at, size in _held(pool, blocks.tolist(), needs_first=needs_first)
        ]
        if not found:
            return NO_EXTRA_HOLDERS
        columns = np.array(found, np.int64).T
        return ExtraHolders(*(np.ascontiguousarray(column) for column in columns))

    def trusts(self, scopes: Any) -> dict[str, Trust]:
        """Return the replicas in these scopes, each with the worst trust of its ranks."""
        found = dict[str, Trust]()
        for source in self._within(scopes):
            facts = source.facts or source.find_facts()
            found[facts.replica] = worst(facts.trust, found.get(facts.replica, "complete"))
        return found

    def replicas(self, now: float) -> list[SourceState]:
        """Return the state of every source, by replica and rank."""
        states = [
            _state(source.residency, now)
            for source in self._sources.by_number.values()
            if source.residency is not None
        ]
        return sorted(states, key=lambda one: (one.replica, one.dp_rank))


def _needs_first(pool: GranularPool, source: IndexedSource) -> bool:
    """Return whether an engine can use nothing of a chain unless this pool holds its first block."""
    assert source.residency is not None
    heads = [each.head for each in source.residency.pools]
    alone = all(head.group_idx == pool.head.group_idx for head in heads)
    whole = (WHOLE, NOT_NAMED) if alone else (WHOLE,)
    return window_of(pool.head) in whole and all(head.medium == "gpu" for head in heads)


def _held(pool: GranularPool, chain: list[int], *, needs_first: bool) -> Iterator[tuple[int, int]]:
    """Yield position and size of the blocks of a chain that a pool holds, if they can matter."""
    if not chain or (needs_first and pool.size_of(chain[0]) is None):
        return
    for at, block in enumerate(chain):
        size = pool.size_of(block)
        if size is not None:
            yield at, size


def _age(at: float | None, now: float) -> float | None:
    if at is None:
        return None
    return round(now - at, 3) if now > at else 0.0


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
        _age(head.connectivity.last_batch_at, now),
        head.closed_reason if head.closed_at is not None else "",
        blocks,
    )
