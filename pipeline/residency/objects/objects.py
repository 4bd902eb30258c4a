"""The objects of one source: blocks whose sizes in bytes are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from pipeline.residency.histogram import bucket_of
from pipeline.residency.objects.medium import NOT_USED, Medium
from schemas.checkpoints import SourceHead
from schemas.events import Accessed, Capacity, Stored
from schemas.hashes import unpack_hashes
from schemas.pool_checkpoints import ObjectFlow, ObjectPool, ObjectState

MOST: Final = 2**63 - 1
"""Tables and checkpoints hold no larger figure."""
_MEBIBYTE_BITS: Final = 20
_LAST_ELEMENT: Final = 63
_Key = tuple[str, int]


class HeldObjects(NamedTuple):
    """What a pool holds at a moment, and how it was used in the open window."""

    medium: str
    group_idx: int
    objects: int
    size: int
    """Bytes."""
    capacity: int
    """Bytes declared for the medium; 0 when unknown."""
    flow: ObjectFlow


class Objects:
    """Objects by (medium, group_idx)."""

    def __init__(self, head: SourceHead, *, most: int, most_pools: int) -> None:
        """`head` is kept up to date. `most` objects at most are known one by one; events that store nothing
        add at most `most_pools` pools and as many capacities."""
        self._most = most
        self._most_pools = most_pools
        self._heads = head.objects
        self._capacities = head.capacity_bytes
        self._pools: dict[_Key, ObjectPool] = {(pool.medium, pool.group_idx): pool for pool in head.objects}
        self._sizes = {key: sum(one.size for one in pool.held.values()) for key, pool in self._pools.items()}
        """Bytes held."""
        self._media = {
            medium: Medium(pool for pool in head.objects if pool.medium == medium)
            for medium in dict.fromkeys(pool.medium for pool in head.objects)
        }
        self._count = sum(len(pool.held) for pool in head.objects)

    def __bool__(self) -> bool:
        """Whether any were ever known."""
        return bool(self._pools)

    def declared(self, event: Capacity) -> None:
        """Note how much room a medium has, as its publisher declares it."""
        if event.medium in self._capacities or len(self._capacities) < self._most_pools:
            self._capacities[event.medium] = event.capacity_bytes

    def store(self, event: Stored, at: float) -> None:
        """Store objects at event time `at`; those held already get the new size."""
        hashes = unpack_hashes(event.hashes)
        if not hashes:
            return
        key = event.medium, event.group_idx
        pool = self._pools.get(key) or self._begin(key)
        medium, flow = self._media[event.medium], pool.flow
        size, tokens = event.size_bytes // len(hashes), event.block_size
        for each in hashes:
            one = pool.held.get(each)
            if one is None:
                if self._count >= self._most:
                    flow.unlisted_objects += 1
                    continue
                one = pool.held[each] = ObjectState(size, tokens, at, NOT_USED)
                self._count += 1
                self._sizes[key] += size
                flow.stored_objects += 1
                flow.stored_bytes = min(flow.stored_bytes + size, MOST)
            else:
                medium.forget(one)
                self._sizes[key] += size - one.size
                one.size, one.tokens = size, tokens
            medium.use(one, at)

    def access(self, event: Accessed, at: float) -> None:
        """Count uses of objects at event time `at`.

        Where the event names no medium, it is the first by name of those that hold the object.
        If nothing was ever known of the group, nothing is counted.
        """
        if event.medium is not None and len(self._pools) < self._most_pools:
            key = event.medium, event.group_idx
            if key not in self._pools:
                self._begin(key)
        pools = [
            self._pools[key]
            for key in sorted(self._pools)
            if key[1] == event.group_idx and event.medium in (None, key[0])
        ]
        if not pools:
            return
        for each in unpack_hashes(event.hashes):
            pool = next((pool for pool in pools if each in pool.held), None)
            if pool is None:
                pools[0].flow.unknown_accesses += 1
                continue
            one, flow, medium = pool.held[each], pool.flow, self._media[pool.medium]
            mebibytes_log2 = (medium.needed(one) - 1).bit_length() - _MEBIBYTE_BITS
            _count_in(flow.needed_hist, min(max(0, mebibytes_log2), _LAST_ELEMENT))
            _count_in(flow.reuse_hist, bucket_of(at - one.used_at))
            flow.accesses += 1
            flow.accessed_tokens = min(flow.accessed_tokens + one.tokens, MOST)
            flow.accessed_bytes = min(flow.accessed_bytes + one.size, MOST)
            flow.first_accesses += one.accesses == 0
            if event.hits:
                flow.hits += 1
                flow.hit_tokens = min(flow.hit_tokens + one.tokens, MOST)
                flow.hit_bytes = min(flow.hit_bytes + one.size, MOST)
            one.accesses += 1
            medium.use(one, at)

    def remove(self, medium: str, group_idx: int, packed: bytes) -> None:
        """Remove objects."""
        key = medium, group_idx
        pool = self._pools.get(key)
        if pool is None:
            return
        for each in unpack_hashes(packed):
            one = pool.held.pop(each, None)
            if one is not None:
                self._count -= 1
                self._sizes[key] -= one.size
                self._media[medium].forget(one)
                _count_in(pool.flow.uses_hist, one.accesses.bit_length())

    def clear(self, is_gone: Callable[[str], bool], group_idx: int | None = None) -> None:
        """Clear the media for which `is_gone` is true, or one group of them."""
        for key, pool in self._pools.items():
            if is_gone(pool.medium) and group_idx in (None, pool.group_idx):
                for one in pool.held.values():
                    self._media[pool.medium].forget(one)
                self._count -= len(pool.held)
                self._sizes[key] = 0
                pool.held.clear()

    def window_ended(self) -> None:
        """Begin to count uses anew."""
        for pool in self._heads:
            pool.flow = ObjectFlow()

    def held(self) -> Iterator[HeldObjects]:
        """Yield what each pool holds now, even if that is nothing."""
        for (medium, group_idx), pool in self._pools.items():
            size = min(self._sizes[medium, group_idx], MOST)
            capacity = self._capacities.get(medium, 0)
            yield HeldObjects(medium, group_idx, len(pool.held), size, capacity, pool.flow)

    def _begin(self, key: _Key) -> ObjectPool:
        pool = self._pools[key] = ObjectPool(*key, ObjectFlow())
        self._heads.append(pool)
        self._sizes[key] = 0
        self._media.setdefault(pool.medium, Medium()).pools.append(pool)
        return pool


def _count_in(histogram: list[int], element: int) -> None:
    """Count one in a histogram without trailing zeros."""
    if element >= len(histogram):
        histogram += [0] * (element + 1 - len(histogram))
    histogram[element] += 1
