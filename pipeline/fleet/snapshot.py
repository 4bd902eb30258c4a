"""When a base of a shard is written, in which records, and how it is read back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from pipeline.errors import CheckpointCorrupt
from pipeline.fleet.packing import Columns, Packed, joined, parts_of
from schemas.fleet_checkpoints import HEAD_KEY, FleetHead, FleetPart, TableName, part_key

BYTES_AT_ONCE = 32 << 20
"""Of a base, per checkpoint: a transaction must not take long."""
MIN_CHANGES = 100_000
MAX_SECONDS = 60.0

_encode = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(FleetHead).decode
_decode_part = msgspec.msgpack.Decoder(FleetPart).decode


class Base(NamedTuple):
    """A base as it was read."""

    head: FleetHead
    tables: Packed


def load(latest: Mapping[bytes, bytes]) -> Base | None:
    """Return the base there is, if any; `latest` holds the last committed value of every key.

    Raises CheckpointCorrupt when parts are missing.
    """
    value = latest.get(HEAD_KEY)
    if value is None:
        return None
    head = _decode_head(value)
    parts = []
    for number in range(head.parts):
        packed = latest.get(part_key(head.epoch, number))
        part = _decode_part(packed) if packed is not None else None
        if part is None or part.epoch != head.epoch:
            raise CheckpointCorrupt("the base", f"part {number}")
        parts.append(part)
    return Base(head, joined(parts))


class Bases:
    """Writes a base when enough changed since the last one, in portions."""

    def __init__(self, head: FleetHead, tables: Callable[[], Mapping[TableName, Columns]]) -> None:
        """`tables` returns the arrays that belong to the head as they are now."""
        self._head = head
        self._tables = tables
        self._followed = head.followed
        self._made_at: float | None = None
        self._waiting: deque[tuple[bytes, bytes]] = deque()

    def take(self, now: float, entries: int) -> list[tuple[bytes, bytes]]:
        """Return the (key, value) records to commit at wall clock `now`; often none.

        A base of so many `entries` is worth its writing when a good part of them changed.
        """
        if not self._waiting and self._due(now, entries):
            self._waiting.extend(self._base())
            self._followed = self._head.followed
            self._made_at = now
        records: list[tuple[bytes, bytes]] = []
        size = 0
        while self._waiting and size < BYTES_AT_ONCE:
            records.append(self._waiting.popleft())
            size += len(records[-1][1])
        return records

    def _due(self, now: float, entries: int) -> bool:
        if self._made_at is None:
            self._made_at = now
        changes = self._head.followed - self._followed
        if changes >= max(MIN_CHANGES, entries // 2):
            return True
        return changes > 0 and now - self._made_at >= MAX_SECONDS

    def _base(self) -> Iterator[tuple[bytes, bytes]]:
        head = self._head
        head.epoch += 1
        head.parts = 0
        for part in parts_of(head.epoch, self._tables()):
            yield part_key(head.epoch, head.parts), _encode(part)
            head.parts += 1
        yield HEAD_KEY, _encode(head)
