"""What is resident of one source, medium by medium and group by group, and what comes and goes."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.residency.changes import Changes
from pipeline.residency.counting import flow
from pipeline.residency.counting.pool import Pool
from pipeline.residency.granularity.two_sizes import GranularPool, overlapping_sizes
from pipeline.residency.occupancy import Occupancy
from schemas.checkpoints import FlowState, PoolHead
from schemas.events import Cleared, Event, Removed, Stored, Undecodable, is_store_only
from schemas.hashes import HASH_BYTES
from schemas.settings import Worker

SETTLE_AT_BYTES = 32_768 * HASH_BYTES
"""Hashes collected before they are applied: enough to make vectors pay, little enough to hold."""


class Pools:
    """The pools of one source, by (medium, group_idx); made when something is first heard of them."""

    def __init__(self, settings: Worker, heads: list[PoolHead]) -> None:
        """`heads` is that of the source, and is kept up to date; entries of known pools follow."""
        self._settings = settings
        self._heads = heads
        self._by_key: dict[tuple[str, int], Pool | GranularPool] = {}
        for head in heads:
            self._by_key[head.medium, head.group_idx] = (
                GranularPool(head, head.granular, age=settings.fine_block_age_seconds)
                if head.granular is not None
                else Pool(head)
            )
        self._granular = [pool for pool in self._by_key.values() if isinstance(pool, GranularPool)]
        self.repeatable = False
        """Whether the engine may announce again, with the same beginning of a chain, what is resident."""
        self._unsettled = 0
        """Bytes of hashes collected since the last `settle`."""
        self._flow_before: dict[tuple[str, int], FlowState] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Pool | GranularPool]:
        return iter(self._by_key.values())

    def __getitem__(self, key: tuple[str, int]) -> Pool | GranularPool:
        return self._by_key[key]

    @property
    def counted(self) -> list[Pool]:
        """The pools of one granularity: those with entries in block tables."""
        return [pool for pool in self._by_key.values() if isinstance(pool, Pool)]

    def apply(self, events: list[Event], at: float) -> list[Cleared | Undecodable]:
        """Apply the events of a batch at event time `at`; return those that say more than that."""
        others: list[Cleared | Undecodable] = []
        pools = self._by_key
        pool: Pool | GranularPool
        key: tuple[str, int] | None = None
        collected = 0
        for event in events:
            # Types are compared because isinstance takes several times as long for msgspec's structs.
            if type(event) is Stored:
                if len(event.hashes) % HASH_BYTES:
                    others.append(Undecodable("bad_hash_length"))
                    continue
                collected += len(event.hashes)
                # Most events are of the pool that the one before was of.
                if key is None or event.group_idx != key[1] or event.medium != key[0]:
                    key = event.medium, event.group_idx
                    pool = pools.get(key) or self._begin(event)
                if not pool.store(event, at, self.repeatable) and isinstance(pool, Pool):
                    pool = self._announced(pool, event, at)
            elif type(event) is Removed:
                if len(event.hashes) % HASH_BYTES:
                    others.append(Undecodable("bad_hash_length"))
                    continue
                collected += len(event.hashes)
                if key is None or event.group_idx != key[1] or event.medium != key[0]:
                    key = event.medium, event.group_idx
                    pool = pools.get(key) or self._begin(event)
                pool.remove(event.hashes, at)
            elif type(event) is Cleared:
                self.clear(at, gpu_only=self._settings.clear_scope == "gpu")
                others.append(event)
            elif type(event) is Undecodable:
                others.append(event)
        for granular in self._granular:
            granular.batch_ended(at)
        self._unsettled += collected
        if self._unsettled >= SETTLE_AT_BYTES:
            self.settle()
        return others

    def clear(self, at: float, *, gpu_only: bool = False) -> None:
        """Everything left, or everything on GPUs."""
        for pool in self._by_key.values():
            if not gpu_only or pool.head.medium == "gpu":
                pool.clear(at)

    def settle(self) -> None:
        """Apply everything collected, so that occupancy, flow and changes are up to date."""
        self._unsettled = 0
        for pool in self._by_key.values():
            pool.settle()

    def window_ended(self, end: float) -> None:
        """Begin to count flow anew, and let fine blocks go that are too old at event time `end`."""
        for key, pool in self._by_key.items():
            self._flow_before[key] = flow.added(self._flow_before.get(key, FlowState()), pool.head.flow)
            pool.head.flow = FlowState()
        for granular in self._granular:
            granular.expire(end)

    def take_changes(self) -> list[Changes]:
        """Return the changes of residency since the last call."""
        self.settle()
        taken = [change for pool in self._by_key.values() for change in pool.changes]
        for pool in self._by_key.values():
            pool.changes = []
        return taken

    def occupancy(self, end: float) -> list[Occupancy]:
        """Return what is resident, per medium, group and block size, at the end of event time `end`.

        Every size ever seen is listed, also when nothing of it is resident any more.
        """
        self.settle()
        return [occupancy for pool in self._by_key.values() for occupancy in pool.occupancy(end)]

    def flow_since_start(self) -> dict[tuple[str, int], FlowState]:
        """Return what came and went per (medium, group_idx) since this object was made."""
        self.settle()
        return {
            key: flow.added(self._flow_before.get(key, FlowState()), pool.head.flow)
            for key, pool in self._by_key.items()
        }

    def _begin(self, event: Stored | Removed) -> Pool:
        """Return the new pool that an event is the first of."""
        head = PoolHead(event.medium, event.group_idx, FlowState())
        if isinstance(event, Stored):
            head.store_only = is_store_only(event)
        pool = self._by_key[head.medium, head.group_idx] = Pool(head)
        self._heads.append(head)
        self.repeatable = self.repeatable and len(self._by_key) <= 1
        return pool

    def _announced(self, pool: Pool, event: Stored, at: float) -> Pool | GranularPool:
        """Apply a store whose size, or way of announcing it, is new to the pool; return the pool it is in."""
        pool.announce(event.block_size, several=len(event.hashes) > HASH_BYTES)
        pool.settle()
        sizes = overlapping_sizes(pool.head)
        into = self._split(pool, *sizes) if sizes is not None else pool
        into.store(event, at, self.repeatable)
        return into

    def _split(self, pool: Pool, coarse_size: int, fine_size: int) -> GranularPool:
        age = self._settings.fine_block_age_seconds
        granular = GranularPool.adopted(pool, coarse_size, fine_size, age=age)
        self._by_key[pool.head.medium, pool.head.group_idx] = granular
        self._heads[self._heads.index(pool.head)] = granular.head
        self._granular.append(granular)
        return granular
