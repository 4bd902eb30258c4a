"""The sources that the index knows, by their numbers in the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pipeline.index.following.scopes import Scope, Scopes
from pipeline.index.holdings.holdings import Holdings
from pipeline.index.holdings.usable import IN_CHUNKS, UNANNOUNCED_REMOVALS
from pipeline.index.pools.tiers import tier_of, window_of
from pipeline.residency.counting.shared import OTHER_LORAS
from pipeline.residency.granularity.two_sizes import GranularPool
from pipeline.residency.source import SourceResidency
from schemas.trust import Trust

_OF_CHUNKS = ("vllm", "")
"""Engines that load whole chunks of several blocks, or may, while their name is not known."""


class SourceFacts(NamedTuple):
    """What every match reports about its source."""

    replica: str
    rank: str
    trust: Trust
    last_batch_at: float | None
    doubts: int
    """Bits of `usable`: which doubts apply to its engine."""


@dataclass
class IndexedSource:
    """One source, with the part of its state that is not in the table."""

    number: int
    scope: Scope
    residency: SourceResidency | None = None
    """None until its pools are made."""
    granular: dict[int, GranularPool] = field(default_factory=dict)
    """Its pools of two granularities, by their numbers."""
    contents: int | None = None
    """Its second number, under which the table has its blocks by content hash; None while it has none."""
    facts: SourceFacts | None = None
    """As of the last record; None until a question needs it."""

    def find_facts(self) -> SourceFacts:
        """Compute and keep what every match reports about the source."""
        assert self.residency is not None
        head = self.residency.head
        trust, last_batch_at = self.residency.overall_trust().trust, head.connectivity.last_batch_at
        doubts = UNANNOUNCED_REMOVALS | IN_CHUNKS if head.engine in _OF_CHUNKS else UNANNOUNCED_REMOVALS
        self.facts = SourceFacts(head.replica, str(head.dp_rank), trust, last_batch_at, doubts)
        return self.facts

    def names(self, lora: str) -> bool:
        """Return whether it is known to have used an adapter since it started; not all names are kept."""
        return self.residency is not None and lora in self.residency.head.loras

    def uses(self, lora: str) -> bool:
        """Return whether it used an adapter since it started, or may have under a name that was not kept."""
        return self.names(lora) or self.names(OTHER_LORAS)


class Sources:
    """Every source of every partition that the index follows.

    One with content hashes has a second number, as the table has its blocks under both hashes. A chain is of
    hashes of one kind, so a question finds the source once.
    """

    def __init__(self) -> None:
        self.holdings = Holdings()
        self.scopes = Scopes()
        self.by_number: dict[int, IndexedSource] = {}
        self.of_contents: dict[int, IndexedSource] = {}
        """Sources by their second numbers, for blocks by content hash."""
        self.granular: dict[int, IndexedSource] = {}
        """Those with pools of two granularities."""

    def begin(self) -> IndexedSource:
        """Return a new source, about which nothing is known yet."""
        scope = Scope("", "", "")
        number = self.holdings.new_source(self.scopes.enter(scope))
        source = self.by_number[number] = IndexedSource(number, scope)
        return source

    def by_content(self, source: IndexedSource) -> int:
        """Return the number under which the table has a source's blocks by content hash."""
        if source.contents is None:
            source.contents = self.holdings.new_source(self.scopes.number(source.scope))
            self.of_contents[source.contents] = source
        return source.contents

    def of_match(self, number: int) -> IndexedSource:
        """Return the source that a number of the table stands for."""
        return self.by_number.get(number) or self.of_contents[number]

    def applied(self, source: IndexedSource, residency: SourceResidency) -> None:
        """Take over what a record may have changed: the scope, and pools of two granularities."""
        source.residency, source.facts = residency, None
        head = residency.head
        scope = Scope(head.model, head.hash_domain, head.tenant)
        if scope != source.scope:
            number = self.scopes.enter(scope)
            self.holdings.set_scope(source.number, number)
            if source.contents is not None:
                self.holdings.set_scope(source.contents, number)
            self.scopes.leave(source.scope)
            source.scope = scope
        if len(residency.pools.granular) != len(source.granular):
            known = {id(pool) for pool in source.granular.values()}
            for pool in residency.pools.granular:
                if id(pool) not in known:
                    self._add_granular(source, pool)

    def _add_granular(self, source: IndexedSource, pool: GranularPool) -> None:
        head, state = pool.head, pool.head.granular
        assert state is not None
        number = self.holdings.new_pool(source.number, tier=tier_of(head.medium), group=head.group_idx)
        sizes = [state.coarse_size, state.fine_size]
        self.holdings.describe(number, sizes, window_of(head))
        source.granular[number] = pool
        self.granular[source.number] = source

    def forget(self, source: IndexedSource) -> None:
        """Drop everything about a source."""
        for pool in source.residency.pools.counted if source.residency is not None else ():
            pool.copies.give_up()
        for number in source.granular:
            self.holdings.retire(number)
        self.holdings.forget_source(source.number)
        if source.contents is not None:
            self.holdings.forget_source(source.contents)
            del self.of_contents[source.contents]
        self.scopes.leave(source.scope)
        self.granular.pop(source.number, None)
        del self.by_number[source.number]
