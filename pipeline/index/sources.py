"""The sources that the index knows, by their numbers in the table."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.index.holdings.holdings import Holdings
from pipeline.index.scopes import Scope, Scopes
from pipeline.index.tiers import tier_of, window_of
from pipeline.residency.granularity.two_sizes import GranularPool
from pipeline.residency.source import SourceResidency
from schemas.trust import Trust


@dataclass
class IndexedSource:
    """One source, and what of it the table does not know."""

    number: int
    scope: Scope
    residency: SourceResidency | None = None
    """None until its pools are made."""
    granular: dict[int, GranularPool] = field(default_factory=dict)
    """Its pools of two granularities, by their numbers."""
    known_trust: Trust | None = None
    """As of the last record; None while nobody asked."""

    def trust(self) -> Trust:
        """Return how completely the source is known."""
        if self.known_trust is None:
            assert self.residency is not None
            self.known_trust = self.residency.overall_trust().trust
        return self.known_trust


class Sources:
    """Every source of every partition that the index follows."""

    def __init__(self) -> None:
        self.holdings = Holdings()
        self.scopes = Scopes()
        self.by_number: dict[int, IndexedSource] = {}
        self.granular: dict[int, IndexedSource] = {}
        """Those with pools of two granularities."""

    def begin(self) -> IndexedSource:
        """Return a source that nothing is known of."""
        scope = Scope("", "", "")
        number = self.holdings.new_source(self.scopes.enter(scope))
        source = self.by_number[number] = IndexedSource(number, scope)
        return source

    def applied(self, source: IndexedSource, residency: SourceResidency) -> None:
        """Take over what a record may have changed."""
        source.residency, source.known_trust = residency, None
        head = residency.head
        if (head.hash_domain, head.model, head.tenant) != (
            source.scope.hash_domain,
            source.scope.model,
            source.scope.tenant,
        ):
            scope = Scope(head.model, head.hash_domain, head.tenant)
            self.holdings.set_scope(source.number, self.scopes.enter(scope))
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
        self.holdings.describe(number, sizes, window_of(head), fine=state.fine_size)
        source.granular[number] = pool
        self.granular[source.number] = source

    def forget(self, source: IndexedSource) -> None:
        """Nothing of a source is kept."""
        for pool in source.residency.pools.counted if source.residency is not None else ():
            pool.given_up()
        for number in source.granular:
            self.holdings.retire(number)
        self.holdings.forget_source(source.number)
        self.scopes.leave(source.scope)
        self.granular.pop(source.number, None)
        del self.by_number[source.number]
