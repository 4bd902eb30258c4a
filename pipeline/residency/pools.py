"""What is resident of one source, medium by medium and group by group, and what comes and goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pipeline.residency.changes import Changes
from pipeline.residency.flow import Flow
from pipeline.residency.granularity import GranularPool
from pipeline.residency.media import is_store_only
from pipeline.residency.pool import NO_PARENT, Pool
from schemas.events import Cleared, Event, Removed, Stored, Undecodable
from schemas.hashes import HASH_BYTES
from schemas.settings import Worker

SETTLE_AT_BYTES = 32_768 * HASH_BYTES
"""Hashes collected before they are applied: enough to make vectors pay, little enough to hold."""


class Occupancy(NamedTuple):
    """What is resident at one granularity of one medium and group."""

    medium: str
    group_idx: int
    block_size: int
    entries: int
    blocks: int
    tokens: int
    covered_blocks: int
    store_only: bool


class Pools:
    """The pools of one source, by (medium, group_idx); made when something is first heard of them."""

    def __init__(self, settings: Worker) -> None:
        self._settings = settings
        self._by_place: dict[tuple[str, int], Pool | GranularPool] = {}
        self.needs_base = True
        """Whether the next checkpoint has to hold everything."""
        self.repeatable = False
        """Whether the engine may announce again, with the same beginning of a chain, what is resident."""
        self._granular: list[GranularPool] = []
        self._unsettled = 0
        """Bytes of hashes collected since the last `settle`."""
        self._flow_before: dict[tuple[str, int], Flow] = {}

    def __len__(self) -> int:
        return len(self._by_place)

    def __iter__(self) -> Iterator[Pool | GranularPool]:
        return iter(self._by_place.values())

    def __getitem__(self, place: tuple[str, int]) -> Pool | GranularPool:
        return self._by_place[place]

    def adopt(self, pool: Pool | GranularPool) -> None:
        """Take in a pool as a checkpoint had it."""
        self._by_place[pool.medium, pool.group_idx] = pool
        if isinstance(pool, GranularPool):
            self._granular.append(pool)

    @property
    def media(self) -> set[str]:
        """Names of the media on which something ever was."""
        return {medium for medium, _ in self._by_place}

    def apply(self, events: list[Event], at: float) -> list[Cleared | Undecodable]:
        """Apply the events of a batch at event time `at`; return those that say more than that."""
        others: list[Cleared | Undecodable] = []
        pools = self._by_place
        pool: Pool | GranularPool | None = None
        place: tuple[str, int] | None = None
        collected = 0
        for event in events:
            # Types are compared because isinstance takes several times as long for msgspec's structs.
            if type(event) is Stored:
                packed = event.hashes
                if len(packed) % HASH_BYTES:
                    others.append(Undecodable("bad_hash_length"))
                    continue
                collected += len(packed)
                # Most events are of the place that the one before was of.
                if place is None or event.group_idx != place[1] or event.medium != place[0]:
                    place = event.medium, event.group_idx
                    pool = pools.get(place)
                # What follows is `_stored` for the common case: nothing new about the pool.
                if type(pool) is Pool and pool.removes:
                    codes = pool.codes_of_several if len(packed) > HASH_BYTES else pool.codes_of_one
                    code = codes.get(event.block_size)
                    if code is not None and (event.parent is not None or not self.repeatable):
                        if event.lora is not None:
                            pool.adapters[len(pool.pending)] = pool.lora_code(event.lora)
                        pool.pending.append((packed, at, code, event.parent or NO_PARENT))
                        continue
                self._stored(event, at)
                place = None
            elif type(event) is Removed:
                packed = event.hashes
                if len(packed) % HASH_BYTES:
                    others.append(Undecodable("bad_hash_length"))
                    continue
                collected += len(packed)
                if place is None or event.group_idx != place[1] or event.medium != place[0]:
                    place = event.medium, event.group_idx
                    pool = pools.get(place)
                if pool is None:
                    pool = self._pool(event.medium, event.group_idx)
                pool.remove(packed, at)
            elif type(event) is Cleared:
                self.clear(at, gpu_only=self._settings.clear_scope == "gpu")
                others.append(event)
                place = None
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
        for pool in self._by_place.values():
            if not gpu_only or pool.medium == "gpu":
                pool.clear(at)
        self.needs_base = True

    def settle(self) -> None:
        """Apply everything collected, so that occupancy, flow and changes are up to date."""
        self._unsettled = 0
        for pool in self._by_place.values():
            pool.settle()

    def window_ended(self, end: float) -> None:
        """Begin to count flow anew, and let fine blocks go that are too old at event time `end`."""
        for place, pool in self._by_place.items():
            self._flow_before.setdefault(place, Flow()).add(pool.flow)
            pool.flow = Flow()
        for granular in self._granular:
            granular.expire(end)

    def take_changes(self) -> list[Changes]:
        """Return the changes of residency since the last call."""
        self.settle()
        taken = [change for pool in self._by_place.values() for change in pool.changes]
        for pool in self._by_place.values():
            pool.changes = []
        return taken

    def occupancy(self, end: float) -> list[Occupancy]:
        """Return what is resident, per medium, group and block size, at the end of event time `end`.

        Every size ever seen is listed, also when nothing of it is resident any more.
        """
        self.settle()
        result = []
        for pool in self._by_place.values():
            if isinstance(pool, GranularPool):
                for size, entries, blocks, tokens, covered in pool.occupancy(end):
                    result.append(
                        Occupancy(pool.medium, pool.group_idx, size, entries, blocks, tokens, covered, False)
                    )
            else:
                store_only = pool.store_only and not pool.removes
                for size, entries, blocks in zip(pool.block_sizes, pool.entries, pool.blocks, strict=True):
                    result.append(
                        Occupancy(
                            pool.medium, pool.group_idx, size, entries, blocks, blocks * size, 0, store_only
                        )
                    )
        return result

    def flow_since_start(self) -> dict[tuple[str, int], Flow]:
        """Return what came and went per (medium, group_idx) since this object was made."""
        self.settle()
        totals = {}
        for key, pool in self._by_place.items():
            total = totals[key] = Flow()
            total.add(pool.flow)
            if key in self._flow_before:
                total.add(self._flow_before[key])
        return totals

    def _stored(self, event: Stored, at: float) -> None:
        pool = self._by_place.get((event.medium, event.group_idx))
        if pool is None:
            pool = self._pool(event.medium, event.group_idx)
            pool.store_only = is_store_only(event.medium, event.raw_medium)
        packed, block_size = event.hashes, event.block_size
        if isinstance(pool, GranularPool):
            parent = int.from_bytes(event.parent, "big") if event.parent is not None else None
            pool.store(packed, at, block_size, parent)
            return
        several = len(packed) > HASH_BYTES
        if block_size not in (pool.codes_of_several if several else pool.codes_of_one):
            pool.note(block_size, several=several)
            sizes = self._granularities(pool)
            if sizes is not None:
                self._split(pool, sizes)
                self._stored(event, at)
                return
        if not pool.removes:
            pool.note_chain(event.parent, packed)
        pool.store(
            packed,
            at,
            block_size,
            event.parent,
            event.lora,
            may_repeat=self.repeatable and event.parent is None,
        )

    @staticmethod
    def _granularities(pool: Pool) -> tuple[int, int] | None:
        """Return (coarse, fine) block sizes if the pool is announced at two overlapping granularities.

        Telling them from partial tail blocks (vLLM 0.24), which are removed one by one like any other:
        those come one hash an event, and their removals are announced.
        """
        pool.settle()
        sizes = sorted(size for size in pool.block_sizes if size > 0)
        for fine in sizes:
            code = pool.block_sizes.index(fine)
            if not pool.several_hashes[code] or pool.removed[code]:
                continue
            coarse = [size for size in sizes if size > fine and size % fine == 0]
            if coarse:
                return coarse[0], fine
        return None

    def _split(self, pool: Pool, sizes: tuple[int, int]) -> None:
        granular = GranularPool.adopted(pool, *sizes, age=self._settings.fine_block_age_seconds)
        self._by_place[pool.medium, pool.group_idx] = granular
        self._granular.append(granular)
        self.needs_base = True

    def _pool(self, medium: str, group_idx: int) -> Pool:
        pool = self._by_place[medium, group_idx] = Pool(medium, group_idx)
        self.repeatable = self.repeatable and len(self._by_place) <= 1
        return pool
