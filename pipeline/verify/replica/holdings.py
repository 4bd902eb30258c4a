"""What a source holds: the pools of its media and groups, and its objects."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pipeline.verify import times
from pipeline.verify.replica import limits
from pipeline.verify.replica.contents import Named, contents_of, links_of, named_on_gpu
from pipeline.verify.replica.copies import Copies, Held
from pipeline.verify.replica.flow import Flow
from pipeline.verify.replica.life import Life
from pipeline.verify.replica.objects import ObjectsRecount
from pipeline.verify.replica.residency_sums import ResidencySums
from pipeline.verify.replica.two_sizes import TwoSizes
from schemas.events import Event, Removed, Stored, is_kept_once, is_store_only
from schemas.hashes import HASH_BYTES, unpack_hashes
from schemas.settings import Worker

POOLS_THAT_MAY_REPEAT = 1
"""Pools of a source, at most, whose stores may be re-announcements (docs/exactness.md#re-announcements)."""
MOST_LEFT = 0.5
"""Share of `worker.max_blocks`: if more blocks outlive a session, none of them is kept."""
SOON = 4.0
"""Seconds, at most, between two consecutive blocks of which decoding completed the second."""
MOST_DECODED = 128
"""Tokens, at most, of a block that decoding may complete so soon."""


class Holdings:
    """All pools of a source, across its sessions."""

    def __init__(self, worker: Worker) -> None:
        self.pools: dict[tuple[str, int], Copies | TwoSizes] = {}
        """By (medium, group); a pool is never removed."""
        self.objects = ObjectsRecount(worker.max_itemised_blocks, worker.max_pool_sizes)
        self._worker = worker
        self._on_gpu_before: Named = {}
        """Content hashes, on the GPU when the batch began, of the blocks that come to other media."""

    # What is held

    def media(self) -> set[str]:
        """Return the media on which something ever was stored or removed."""
        return {medium for medium, _ in self.pools}

    def held(self, at: float) -> list[tuple[str, int, Held]]:
        """Return (medium, group, held) for every pool and size, as of event time `at`."""
        return [(*where, held) for where, pool in self.pools.items() for held in pool.held(at)]

    def on_gpu(self, at: float) -> list[tuple[int, Held]]:
        """Return the same of the GPU, by group."""
        return [(group, held) for medium, group, held in self.held(at) if medium == "gpu"]

    def residency_sums(self) -> dict[tuple[str, int], ResidencySums]:
        """Return what the residency topic must add up to for the present session."""
        return {where: pool.residency_sums() for where, pool in self.pools.items()}

    # What may come

    def room_for_medium(self, medium: str) -> bool:
        """Return whether a medium that an event names is known; if not, make it known if there is room."""
        if medium not in self.media():
            first = Removed(b"", medium)
            if limits.no_room_for(first, self.pools, self._worker):
                return False
            self._pool_of(first)
        return True

    def left_out(self, event: Stored | Removed) -> bool:
        """Return whether an event must be left out: its hashes are malformed, or there is no room."""
        return bool(len(event.hashes) % HASH_BYTES) or limits.no_room_for(event, self.pools, self._worker)

    # What comes and goes

    def window_began(self, window: int) -> None:
        """Reset the counts of what comes and goes."""
        self.objects.window_began()
        for pool in self.pools.values():
            pool.flow = Flow()
            if isinstance(pool, TwoSizes):
                pool.window_began(times.end_of(window - 1))

    def batch_began(self, events: Sequence[Event]) -> bool:
        """Note the state before a batch; return whether there is room for its stores."""
        self._on_gpu_before = named_on_gpu(events, self.pools)
        return not limits.no_room_for_stores(events, self.pools, self._worker)

    def batch_ended(self) -> bool:
        """Finish a batch; return whether any blocks were dropped because there were too many."""
        for pool in self.pools.values():
            if isinstance(pool, TwoSizes):
                pool.batch_ended()
        return limits.shed(self.pools, self._worker)

    def stored(self, event: Stored, at: float, life: Life, *, all_known: bool) -> None:
        """Count a store; `all_known`: whether everything that came to this medium and left it is known."""
        hashes = unpack_hashes(event.hashes)
        parent = None if event.parent is None else unpack_hashes(event.parent)[0]
        pool = self._pool_of(event)
        if isinstance(pool, Copies) and not pool.sizes:
            pool.store_only = is_store_only(event)
        one_copy = _keeps_one_copy(pool, event.medium, life)
        if isinstance(pool, Copies) and pool.announced(hashes, event.block_size):
            sizes = None if one_copy else pool.overlapping_sizes(event.block_size)
            if sizes is not None:
                pool = TwoSizes(pool, *sizes, age=self._worker.fine_block_age_seconds)
                self.pools[event.medium, event.group_idx] = pool
        if isinstance(pool, TwoSizes):
            pool.store(hashes, event.block_size, parent, at)
        else:
            others = [one for one in self.pools.values() if isinstance(one, Copies) and one is not pool]
            pool.remember(hashes, parent, elsewhere=sum(one.remembered_hashes for one in others))
            contents = contents_of(event, self.pools, self._on_gpu_before)
            repeats = pool.store(
                hashes,
                event.block_size,
                at,
                contents,
                may_repeat=parent is None and self._may_repeat(life),
                one_copy=one_copy,
                generated=life.engine == "vllm" and _is_generated(pool, event, at),
            )
            if repeats:
                most = self._worker.max_itemised_blocks if all_known else 0
                pool.repeated(hashes, event.block_size, at, links_of(event), most=most)
        self.objects.stored(event, at)

    def removed(self, event: Removed, at: float, life: Life, *, all_known: bool) -> bool:
        """Remove a copy of each block; return whether some were not there. `all_known` as in `stored`."""
        pool = self._pool_of(event)
        unknown = pool.flow.unknown_removed_blocks
        hashes = unpack_hashes(event.hashes)
        provable = all_known and isinstance(pool, Copies) and not _keeps_one_copy(pool, event.medium, life)
        while provable and isinstance(pool, Copies) and pool.again and hashes:
            if pool.was_copied(hashes[0]):
                pool.count_again(at)
                life.copies_proved = True
            pool.remove(hashes[:1], at)
            hashes, provable = hashes[1:], pool.flow.unknown_removed_blocks == unknown
        pool.remove(hashes, at)
        self.objects.removed(event.medium, event.group_idx, event.hashes)
        return pool.flow.unknown_removed_blocks > unknown

    def cleared(self, media: Collection[str], group_idx: int | None, at: float) -> None:
        """Clear one group of these media, or all groups (None)."""
        for (medium, group), pool in self.pools.items():
            if medium in media and group_idx in (None, group):
                pool.clear(at)
        for medium in media:
            self.objects.cleared(medium, group_idx)

    def _pool_of(self, event: Stored | Removed) -> Copies | TwoSizes:
        where = (event.medium, event.group_idx)
        if where not in self.pools:
            self.pools[where] = Copies(store_only=is_store_only(event))
        return self.pools[where]

    def _may_repeat(self, life: Life) -> bool:
        """Return whether a store at the start of a sequence may be a re-announcement."""
        return (
            self._worker.reannounced == "auto"
            and life.may_reannounce is True
            and len(self.pools) <= POOLS_THAT_MAY_REPEAT
            and "contradiction" not in life.remarks
            and not life.copies_proved
        )

    # Sessions

    def outliving(self) -> set[str]:
        """Return the media that outlive engines and hold something."""
        return {medium for medium, pool in self._kept_once() if pool.blocks}

    def too_many_outlive(self) -> bool:
        """Return whether what outlives the engine is too much to carry on."""
        return sum(len(pool.blocks) for _, pool in self._kept_once()) > self._worker.max_blocks * MOST_LEFT

    def lose(self, at: float, *, outliving: bool, the_rest: bool = True) -> None:
        """Clear pools: if `outliving`, of media that outlive the engine; if `the_rest`, of the others."""
        for (medium, _), pool in self.pools.items():
            if outliving if is_kept_once(medium) else the_rest:
                pool.clear(at)
                self.objects.cleared(medium)

    def life_began(self) -> None:
        """Begin a session, with no changes."""
        for pool in self.pools.values():
            pool.life_began()

    def _kept_once(self) -> list[tuple[str, Copies]]:
        return [
            (medium, pool)
            for (medium, _), pool in self.pools.items()
            if isinstance(pool, Copies) and is_kept_once(medium)
        ]


def _keeps_one_copy(pool: Copies | TwoSizes, medium: str, life: Life) -> bool:
    return life.one_copy or pool.store_only or is_kept_once(medium)


def _is_generated(pool: Copies, event: Stored, at: float) -> bool:
    """Return whether decoding completed a block: it came alone, soon after the one before it."""
    if event.medium != "gpu" or event.block_size > MOST_DECODED:
        return False
    if len(event.hashes) != HASH_BYTES or event.parent is None:
        return False
    parent = unpack_hashes(event.parent)[0]
    return parent != 0 and parent in pool.blocks and at - pool.blocks[parent].since <= SOON
