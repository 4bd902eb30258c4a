"""What the fleet agent's checkpoint says of a shard: who holds which blocks, and their chains.

The recount uses this only for blocks that no record still in the log names (`undoing.py`), and for chains
(`../prefixes.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from pipeline.verify.fleet.changes import Space, removals_announced
from pipeline.verify.fleet.parsed import Chain, columns_of, counting
from pipeline.verify.fleet.split_mix import MASK, mixed, unmixed
from pipeline.verify.keys import SourceId
from schemas.checkpoints import CheckpointFormat
from schemas.fleet_checkpoints import FORMAT, HEAD_KEY, FleetHead, FleetPart, FleetUndecided, part_key
from schemas.residency import FILLS, ResidencyChanges, SourceChanges

_STORE_ONLY = "/store-only"
_STORE_ONLY_BIT = 8
_MEDIA = 14
"""Bits of a pair that are media; the next one says that its source received KV when the block came, and the
last that a loss is remembered."""
_LOWER_MEDIA = 1 << 32
"""Where the constants of gauges begin, which distinguish entries of media below the GPU."""
_BLOCK_COLUMNS = "QdIHHHHHHQHHH"
"""Key, last eviction, size, owners, holders, evicted, cleared, lineage, depth, root, and three of those that
receive."""
_PAIR_COLUMNS = "QIHH"
"""Key, number of the loss, source, media."""
_WAITING_COLUMNS = "dQdqQQIiHHB"
"""When it counts, key, event time, tokens stored, root, run, size, piece, depth, lineage, kind."""
_WAITING_PIECE_COLUMNS = "HHBBQiidBBqIQB"
"""Source, session, bit of the medium, and eleven more: the last but two is the number of the hash domain, the
last but four whether the source receives KV."""


class CheckpointUnclear(Exception):
    """A checkpoint that cannot be read the way this recount reads it; the argument says why."""


class Pool(NamedTuple):
    """Where a source holds blocks."""

    source: SourceId
    space: Space
    medium: str


class HeldBlock(NamedTuple):
    """What is known of a block in a pool."""

    announced: bool
    """Whether removals are announced there."""
    received: bool
    """Whether the source received KV when the block came."""
    size: int
    """Tokens."""


def pool_of(said: SourceChanges, changes: ResidencyChanges) -> Pool:
    """Return the pool that these changes are of."""
    space = Space(said.hash_domain, said.model, changes.group_idx)
    return Pool((said.replica, said.dp_rank), space, changes.medium)


Pools = dict[Pool, dict[int, HeldBlock]]
"""Blocks of each pool, by hash."""


@dataclass
class Saved:
    """A checkpoint, as far as the recount needs it."""

    next_offset: int
    """Records before it are in the checkpoint."""
    followed: int
    """Changes that the agent has applied since it had no state."""
    clock: float
    """Latest event time."""
    held: Pools = field(default_factory=dict)
    chains: dict[tuple[Space, int], Chain] = field(default_factory=dict)
    """Of blocks that are held or remembered, where they are known."""
    undecided: FleetUndecided = field(default_factory=FleetUndecided)
    """Changes that wait until it is known whether their source receives KV; `held` includes them."""


def saved_in(latest: Mapping[bytes, bytes], shard: int, shards: int) -> Saved | None:
    """Return the checkpoint in the last values of all keys; None without one. Raises CheckpointUnclear."""
    value = latest.get(HEAD_KEY)
    if value is None:
        return None
    try:
        if msgspec.msgpack.decode(value, type=CheckpointFormat).format != FORMAT:
            raise CheckpointUnclear("it has another format")
        head = msgspec.msgpack.decode(value, type=FleetHead)
        tables = _tables(head, latest)
        (clock,) = struct.unpack_from("<d", tables["clock"][1]) if "clock" in tables else (0.0,)
        saved = Saved(head.next_offset, head.followed, clock)
        _Reader(head, tables, shard, shards).read_into(saved)
    except (msgspec.DecodeError, struct.error, IndexError, KeyError, ValueError) as error:
        raise CheckpointUnclear(f"it is damaged, {type(error).__name__}") from error
    return saved


def _tables(head: FleetHead, latest: Mapping[bytes, bytes]) -> dict[str, list[bytes]]:
    """Return the packed columns of each table."""
    pieces: dict[str, list[list[bytes]]] = {}
    for number in range(head.parts):
        part = msgspec.msgpack.decode(latest[part_key(head.epoch, number)], type=FleetPart)
        if part.epoch != head.epoch:
            raise CheckpointUnclear("a part of it is missing")
        pieces.setdefault(part.table, []).append(part.columns)
    return {name: [b"".join(some) for some in zip(*of, strict=True)] for name, of in pieces.items()}


def _rows(tables: Mapping[str, list[bytes]], name: str, kinds: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table, if it is there; `kinds`: the types of its columns in letters of `struct`."""
    columns = tables.get(name, [b""] * len(kinds))
    unpacked = [
        struct.unpack(f"<{len(column) // struct.calcsize(f'<{kind}')}{kind}", column)
        for column, kind in zip(columns, kinds, strict=True)
    ]
    return zip(*unpacked, strict=True)


class _Entry(NamedTuple):
    size: int
    lineage: int
    depth: int
    root: int


class _Reader:
    """Turns keys and numbers of one checkpoint back into hashes and names."""

    def __init__(self, head: FleetHead, tables: dict[str, list[bytes]], shard: int, shards: int) -> None:
        self._head = head
        self._tables = tables
        self._shard, self._shards = shard, shards
        self._constants = [constant_of(number) for number in range(len(head.spaces))]
        self._gauges = {
            (gauge.space, gauge.medium): constant_of(_LOWER_MEDIA + number)
            for number, gauge in enumerate(head.gauges)
        }
        self._media = {bit: name for name, bit in head.media.items()}
        self._entries: dict[int, _Entry] = {}

    def read_into(self, saved: Saved) -> None:
        if len(self._media) < len(self._head.media):
            raise CheckpointUnclear("several media share a number in it")
        blocks = _rows(self._tables, "blocks", _BLOCK_COLUMNS)
        for key, _, size, *_, lineage, depth, root, _, _, _ in blocks:
            self._entries[key] = _Entry(size, lineage, depth, root)
        for key, entry in self._entries.items():
            if entry.root:
                lineage = self._head.lineages[entry.lineage]
                block = self._block(key, lineage.space)
                saved.chains[block] = Chain(entry.root, entry.depth, lineage.lora)
        for key, _, source, media in _rows(self._tables, "pairs", _PAIR_COLUMNS):
            for bit in range(_MEDIA):
                if media >> bit & 1:
                    self._held(saved.held, key, source, bit, received=bool(media >> _MEDIA & 1))
        self._read_waiting(saved)
        self._read_undecided(saved)

    def _read_undecided(self, saved: Saved) -> None:
        """Apply the changes of sources of which it is unknown whether they receive KV, as if they did not."""
        if "undecided" not in self._tables:
            return
        saved.undecided = msgspec.msgpack.decode(self._tables["undecided"][0], type=FleetUndecided)
        for said in saved.undecided.changes:
            for part in said.changes:
                held = saved.held.setdefault(pool_of(said, part), {})
                columns = columns_of(part)
                for index in counting(columns):
                    saved.followed += 1
                    block = columns.hashes[index]
                    if columns.kinds[index] in FILLS:
                        one = HeldBlock(removals_announced(part), said.receives, columns.sizes[index])
                        held.setdefault(block, one)
                    else:
                        held.pop(block, None)
                saved.clock = max([saved.clock, *columns.times])

    def _read_waiting(self, saved: Saved) -> None:
        """Apply the changes that came before the checkpoint and count later."""
        pieces = [*_rows(self._tables, "waiting_pieces", _WAITING_PIECE_COLUMNS)]
        waiting = sorted(_rows(self._tables, "waiting", _WAITING_COLUMNS), key=itemgetter(0))
        for _, key, at, _, root, _, size, piece, depth, lineage, kind in waiting:
            source, _, bit, *_, receives, _, number, _, _ = pieces[piece]
            pool = self._pool(source, number, bit)
            block = hash_of(key, self._constants[number])
            held = saved.held.setdefault(pool, {})
            saved.clock = max(saved.clock, at)
            if kind not in FILLS:
                held.pop(block, None)
                continue
            held.setdefault(block, HeldBlock(bit < _STORE_ONLY_BIT, bool(receives), size))
            if root:
                lora = self._head.lineages[lineage].lora
                saved.chains.setdefault((pool.space, block), Chain(root, depth, lora))

    def _held(self, held: Pools, key: int, source: int, bit: int, *, received: bool) -> None:
        number = self._space_of(key, source)
        pool = self._pool(source, number, bit)
        lower = 0 if pool.medium == "gpu" else self._gauges[number, pool.medium]
        size = self._entries[(key + lower) & MASK].size
        found = HeldBlock(bit < _STORE_ONLY_BIT, received, size)
        held.setdefault(pool, {})[hash_of(key, self._constants[number])] = found

    def _pool(self, source: int, space: int, bit: int) -> Pool:
        known = self._head.sources[source]
        if known is None:
            raise CheckpointUnclear("it lacks a source")
        medium = self._media[bit].removesuffix(_STORE_ONLY)
        return Pool((known.replica, known.dp_rank), self._space(space), medium)

    def _space_of(self, key: int, source: int) -> int:
        """Return the number of the hash domain and group of a key that a source has."""
        # What is held only where removals are not announced need not have an entry of its own.
        entry = self._entries.get(key)
        if entry is not None and entry.root:
            return self._head.lineages[entry.lineage].space
        standing = self._head.standings.get(source)
        may_be = [
            number
            for number, space in enumerate(self._head.spaces)
            if (standing is None or (space.hash_domain, space.model) == (standing.domain, standing.model))
            and hash_of(key, self._constants[number]) * self._shards >> 64 == self._shard
        ]
        if len(may_be) != 1:
            raise CheckpointUnclear("it has blocks without a chain, which may be of several groups")
        return may_be[0]

    def _block(self, key: int, number: int) -> tuple[Space, int]:
        return self._space(number), hash_of(key, self._constants[number])

    def _space(self, number: int) -> Space:
        space = self._head.spaces[number]
        return Space(space.hash_domain, space.model, space.group_idx)


def constant_of(number: int) -> int:
    """Return what the agent mixes into the hashes of a hash domain and group (output of SplitMix64)."""
    return mixed(((number + 1) * 0x9E3779B97F4A7C15) & MASK)


def hash_of(key: int, constant: int) -> int:
    """Return the hash that a key was made from."""
    return unmixed(key) ^ constant
