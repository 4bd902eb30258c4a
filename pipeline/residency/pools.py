"""What is resident of one source, medium by medium and group by group, and what comes and goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from msgspec.structs import replace

from pipeline.reading.columns import REMOVAL
from pipeline.reading.plain_runs import PlainRun
from pipeline.reading.windows import window_end
from pipeline.residency import contents, limits
from pipeline.residency.changes import Changes
from pipeline.residency.counting.copies import NewCopies
from pipeline.residency.counting.pool import Pool
from pipeline.residency.counting.shared import Adapters, EarlyRoom, Shared
from pipeline.residency.granularity.two_sizes import GranularPool, overlapping_sizes
from pipeline.residency.limits import LeftOut
from pipeline.residency.objects.objects import Objects
from pipeline.residency.occupancy import Occupancy
from pipeline.residency.row_bytes import copied
from pipeline.residency.stream import trust
from schemas.checkpoints import SourceHead
from schemas.events import (
    DECODES_SINGLY,
    OWNED,
    Accessed,
    Capacity,
    Cleared,
    Event,
    Removed,
    Stored,
    Undecodable,
    is_cleared,
    is_kept_once,
    is_store_only,
)
from schemas.hashes import HASH_BYTES
from schemas.pool_checkpoints import FlowState, PoolHead
from schemas.settings import Worker

Told = Cleared | Undecodable | LeftOut
Tell = Callable[[Told, float], None]
"""Called with what pools do not handle themselves, and the event time."""

LONGEST_WINDOW = 1 << 31
"""Tokens: a larger value is no sliding window."""
SETTLE_AT = 32_768
"""Hashes collected before they are applied: enough for vector operations to pay, few enough to hold."""


class Pools:
    """The pools of one source, by (medium, group_idx); each is made when it is first heard of."""

    def __init__(self, settings: Worker, source: SourceHead, new_copies: NewCopies) -> None:
        """`source` is kept up to date; entries of the pools that it has are put afterwards."""
        self._settings = settings
        self._new_copies = new_copies
        self._source, self._heads = source, source.pools
        early = sum(len(packed) for head in source.pools for _, packed in head.early_stores) // HASH_BYTES
        adapters = Adapters(source.loras, most=limits.MOST_ADAPTERS)
        most_repeats = settings.max_itemised_blocks
        self.shared = Shared(adapters, EarlyRoom(early), source.spread, most_repeats=most_repeats)
        shared = self.shared
        shared.one_copy, shared.decodes_singly = source.one_copy, source.engine in DECODES_SINGLY
        shared.all_known = lambda medium: trust.of(source.trust, medium).trust == "complete"
        shared.unknown_removed, shared.copies_proved = self._contradicted, self._copies_proved
        self._by_key: dict[tuple[str, int], Pool | GranularPool] = {}
        for head in self._heads:
            self._by_key[head.medium, head.group_idx] = (
                GranularPool(head, head.granular, age=settings.fine_block_age_seconds)
                if head.granular is not None
                else Pool(head, shared, new_copies(head, shared))
            )
        self.granular = [pool for pool in self._by_key.values() if isinstance(pool, GranularPool)]
        """The pools of two granularities."""
        for granular in self.granular:
            granular.unknown_removed = self._contradicted
        self.repeatable = False
        """Whether the engine may announce resident blocks again, in stores that start a chain."""
        self.operations = 0
        """Stores and removals of a block since this object was made, and clears: unless it grows, entries of
        block tables stay as they are."""
        self._settled = False
        """Whether nothing happened since the last `settle`."""
        self._full = limits.sizes(self) >= settings.max_pool_sizes
        self._room = limits.Room(settings, self)
        self._links_came = False
        """Whether links came since this object was made."""
        self.objects = Objects(source, most=settings.max_itemised_blocks, most_pools=settings.max_pool_sizes)

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

    def session_began(self, loras: list[str]) -> None:
        """Start naming adapters anew; `loras` is the list in the head."""
        self.shared.adapters = Adapters(loras, most=limits.MOST_ADAPTERS)

    def apply(self, events: list[Event], at: float, tell: Tell) -> None:
        """Apply the events of a batch at event time `at`; `tell` gets at once what pools do not handle."""

        def told(what: Told) -> None:
            tell(what, at)
            self._settled = False  # it may have settled what was collected so far

        no_stores = self._room.lacks(events, self.settle)
        self._settled = False
        begun_with = contents.on_gpu(events, self._by_key) if self._content_known else {}
        pool: Pool | GranularPool | None = None
        key: tuple[str, int] | None = None
        collected = 0
        for event in events:
            # Types are compared because isinstance takes several times as long for msgspec's structs.
            if type(event) is Stored:
                if len(event.hashes) % HASH_BYTES:
                    told(Undecodable("bad_hash_length"))
                    continue
                if no_stores is not None:
                    told(LeftOut(no_stores, 1))
                    continue
                # Most events are of the same pool as the one before.
                if key is None or event.group_idx != key[1] or event.medium != key[0]:
                    key = event.medium, event.group_idx
                    pool = self._by_key.get(key) or self._begin(event)
                if begun_with and event.medium != "gpu":
                    event = contents.as_on_gpu(event, begun_with, self._by_key)
                elif event.medium != "gpu" and event.links:
                    event = replace(event, links=b"")
                has_room = pool is not None
                if pool is not None and not pool.store(event, at, self.repeatable) and isinstance(pool, Pool):
                    announced = self._announced(pool, event, at)
                    pool, has_room = announced or pool, announced is not None
                if not has_room:
                    told(LeftOut("too_many_sizes", 1))
                elif event.size_bytes:
                    self.objects.store(event, at)
                collected += len(event.hashes)
                self._links_came |= bool(event.links)
            elif type(event) is Removed:
                if len(event.hashes) % HASH_BYTES:
                    told(Undecodable("bad_hash_length"))
                    continue
                if key is None or event.group_idx != key[1] or event.medium != key[0]:
                    key = event.medium, event.group_idx
                    pool = self._by_key.get(key) or self._begin(event)
                if pool is None:
                    told(LeftOut("too_many_sizes", 1))
                else:
                    pool.remove(event.hashes, at)
                    if self.objects:
                        self.objects.remove(event.medium, event.group_idx, event.hashes)
                collected += len(event.hashes)
            else:
                self._apply_rare(event, at, told)
        self._batch_ended(collected // HASH_BYTES, at, told)

    def _apply_rare(self, event: Event, at: float, told: Callable[[Told], None]) -> None:
        """Apply an event that is neither a store nor a removal."""
        if type(event) is Cleared:
            if event.medium and not event.medium.endswith(OWNED) and not self._has(event.medium):
                told(LeftOut("too_many_sizes", 1))
                return
            scope = self.cleared_medium(event)
            self.clear(at, partial(is_cleared, scope=scope), event.group_idx)
            told(event)
        elif type(event) is Undecodable:
            if event.medium is None or self._has(event.medium):
                told(event)
            else:
                told(LeftOut("too_many_sizes", event.count))
        elif type(event) is Accessed:
            if len(event.hashes) % HASH_BYTES:
                told(Undecodable("bad_hash_length"))
            else:
                self.objects.access(event, at)
        elif type(event) is Capacity:
            self.objects.declared(event)

    def _batch_ended(self, collected: int, at: float, told: Callable[[Told], None]) -> None:
        """Finish a batch of which `collected` hashes wait to be counted."""
        for granular in self.granular:
            granular.batch_ended(at)
        self._room.unsettled += collected
        self.operations += collected
        if self.granular and limits.shed(self, self._settings.max_itemised_blocks, at):
            told(LeftOut("too_many_itemised", 0))
        if self._room.unsettled >= SETTLE_AT:
            self.settle()

    @property
    def _content_known(self) -> bool:
        """Whether blocks may have content hashes."""
        return self._links_came or any(pool.keeps_contents for pool in self._by_key.values())

    def _contradicted(self, medium: str) -> None:
        """Note that unknown blocks left a medium: if all should be known, what is known of it is wrong.

        It is so from the beginning of the window on, so that it does not matter which batch shows it.
        Publishers that keep one copy may name a block that another removed before, as in a shared pool.
        """
        source = self._source
        if self.shared.one_copy or source.window is None:
            return
        if self.shared.all_known(medium):
            trust.contradicted(source, medium, window_end(source.window - 1))
            self.repeatable = False

    def _copies_proved(self) -> None:
        """Count all stores as copies from now on: removals prove that seeming repetitions were copies."""
        self._source.copies_proved = True
        self.repeatable = False

    def follow_engine(self) -> None:
        """Follow what the head of the source now says of its engine."""
        source, shared = self._source, self.shared
        decodes_singly = source.engine in DECODES_SINGLY
        if source.one_copy != shared.one_copy or decodes_singly != shared.decodes_singly:
            self.settle()
            shared.one_copy, shared.decodes_singly = source.one_copy, decodes_singly

    def knows(self, run: PlainRun) -> bool:
        """Return whether the events of a run need only be counted, and no limit is near."""
        if self.granular or self.objects:
            return False
        for key, size, several in run.shapes:
            # Which blocks the GPU held at that moment cannot be found out later.
            if key[0] != "gpu" and size != REMOVAL and (run.has_links or self._content_known):
                return False
            if not isinstance(pool := self._by_key.get(key), Pool) or not pool.knows(size, several=several):
                return False
        return self._room.has(run.hash_count)

    def apply_run(self, run: PlainRun) -> None:
        """Apply the events of a run for which `knows` is true."""
        self._settled = False
        self._links_came |= bool(run.has_links)
        loras = self.shared.adapters.codes_of(run) if run.has_loras else None
        for key, events in run.events_by_pool():
            if loras is not None:
                events = events._replace(rows=copied(events.rows))
                events.rows["adapter"] = loras[events.rows["adapter"]]
            pool = self._by_key[key]
            assert isinstance(pool, Pool)
            pool.add(events, repeatable=self.repeatable)
        self._room.unsettled += run.hash_count
        self.operations += run.hash_count
        if self._room.unsettled >= SETTLE_AT:
            self.settle()

    def cleared_medium(self, event: Cleared) -> str:
        """Return the scope of a clear, as `schemas.events.is_cleared` expects it."""
        if event.medium is not None:
            return event.medium
        return "" if self._source.clears_all or self._settings.clear_scope == "all" else "gpu"

    def clear(self, at: float, is_gone: Callable[[str], bool], group: int | None = None) -> None:
        """Clear the media for which `is_gone` is true, or one group of them."""
        self._settled = False
        self.operations += 1
        for (of_medium, of_group), pool in self._by_key.items():
            if is_gone(of_medium) and group in (None, of_group):
                pool.clear(at)
        self.objects.clear(is_gone, group)

    def kept(self) -> Counter[str]:
        """Return how many blocks each medium that outlives the engine holds; empty ones are left out."""
        self.settle()
        held: Counter[str] = Counter()
        for pool in self.counted:
            if is_kept_once(pool.head.medium):
                held[pool.head.medium] += sum(pool.head.blocks)
        return +held

    def settle(self) -> None:
        """Apply everything collected, so that occupancy, flow and changes are up to date."""
        if self._settled:
            return
        self._settled = True
        for pool in self._by_key.values():
            pool.settle()
        self._room.settled(self)

    def window_ended(self, end: float) -> None:
        """Begin to count flow anew, and drop fine blocks that are too old at event time `end`."""
        for head in self._heads:
            head.flow = FlowState()
        self.objects.window_ended()
        for granular in self.granular:
            self._settled = False
            granular.expire(end)

    def take_changes(self) -> list[Changes]:
        """Return the changes of residency since the last call."""
        self.settle()
        taken = list[Changes]()
        for pool in self._by_key.values():
            taken += pool.changes
            pool.changes = []
        return taken

    def occupancy(self, end: float) -> list[Occupancy]:
        """Return what is resident, per medium, group and block size, at the end of event time `end`.

        Every size ever seen is listed, even if nothing of it is resident any more.
        """
        self.settle()
        return [occupancy for pool in self._by_key.values() for occupancy in pool.occupancy(end)]

    def _has(self, medium: str) -> bool:
        """Return whether a medium has a pool, after making one if there is room for it."""
        return any(of == medium for of, _ in self._by_key) or self._begin(Removed(b"", medium)) is not None

    def _begin(self, event: Stored | Removed) -> Pool | None:
        """Return the new pool that an event is the first of, None if there are too many."""
        if self._full:
            return None
        head = PoolHead(event.medium, event.group_idx, FlowState(), store_only=is_store_only(event))
        pool = Pool(head, self.shared, self._new_copies(head, self.shared))
        self._by_key[head.medium, head.group_idx] = pool
        self._heads.append(head)
        self._full = limits.sizes(self) >= self._settings.max_pool_sizes
        self.repeatable = self.repeatable and len(self._by_key) <= 1
        return pool

    def _announced(self, pool: Pool, event: Stored, at: float) -> Pool | GranularPool | None:
        """Apply a store whose size, or way of announcing it, is new to the pool.

        Return the pool it is in, None if its size is one too many.
        """
        known = pool.head.block_sizes
        if self._full and known and event.block_size not in known:
            return None
        if not known:
            pool.head.store_only = is_store_only(event)
        pool.head.spec_kind = event.spec_kind or pool.head.spec_kind
        if event.sliding_window is not None and 0 < event.sliding_window < LONGEST_WINDOW:
            pool.head.sliding_window = event.sliding_window
        pool.announce(event.block_size, several=len(event.hashes) > HASH_BYTES)
        pool.settle()
        sizes = None if pool.one_copy else overlapping_sizes(pool.head, event.block_size)
        into = self._split(pool, *sizes) if sizes is not None else pool
        into.store(event, at, self.repeatable)
        self._full = limits.sizes(self) >= self._settings.max_pool_sizes
        return into

    def _split(self, pool: Pool, coarse_size: int, fine_size: int) -> GranularPool:
        age = self._settings.fine_block_age_seconds
        granular = GranularPool.adopted(pool, coarse_size, fine_size, age=age)
        pool.copies.give_up()
        # All that it holds is kept one by one from now on; what was collected since is counted by itself.
        granular.unknown_removed = self._contradicted
        self._room.itemised += granular.blocks
        self._by_key[pool.head.medium, pool.head.group_idx] = granular
        self._heads[self._heads.index(pool.head)] = granular.head
        self.granular.append(granular)
        return granular
