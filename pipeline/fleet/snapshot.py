"""When a base of a shard is written, in which records, and how it is read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from pipeline.errors import CheckpointCorrupt, CheckpointFormatUnknown
from pipeline.fleet.packing import Packed, Rows, Table, joined, parts_of, rows_in
from schemas.checkpoints import CheckpointFormat
from schemas.fleet_checkpoints import FORMAT, HEAD_KEY, FleetHead, FleetPart, TableName, part_key

BYTES_AT_ONCE = 8 << 20
"""Bytes of a base per checkpoint: a checkpoint must not hold the worker up."""
MIN_CHANGES = 100_000
MAX_SECONDS = 600.0
"""Longest time between two bases while anything changes: far less than the log's retention; and fewer than
MIN_CHANGES take no time to apply again."""
CATCHING_UP_SECONDS = 15.0
"""A shard that changes while its latest event is older than this catches up: agents that keep up make a round
every four seconds or sooner. Copying its tables would prolong catching up by a second per shard."""
_TURNOVER = 0.5
"""Changes between two bases, as a share of the number of entries."""
_TURNOVER_CATCHING_UP = 4.0
"""The same for a shard that catches up: should the worker die, what a base would have saved is applied again
sooner than bases that frequent are copied, packed, sent and kept."""
_GOLDEN = 0.618
"""Its multiples modulo 1 lie far apart, however many there are."""

_encode = msgspec.msgpack.Encoder().encode
_decode_format = msgspec.msgpack.Decoder(CheckpointFormat).decode
_decode_head = msgspec.msgpack.Decoder(FleetHead).decode
_decode_part = msgspec.msgpack.Decoder(FleetPart).decode


class Base(NamedTuple):
    """A base as it was read."""

    head: FleetHead
    tables: Packed
    """All tables but those in `rows`."""
    rows: Rows


def load(latest: Mapping[bytes, bytes]) -> Base | None:
    """Return the base there is, if any; `latest` holds the last committed value of every key.

    Raises CheckpointFormatUnknown, CheckpointCorrupt when parts are missing, and ValueError for bad lengths.
    """
    value = latest.get(HEAD_KEY)
    if value is None:
        return None
    found = _decode_format(value).format
    if found != FORMAT:
        raise CheckpointFormatUnknown(found, FORMAT)
    head = _decode_head(value)
    parts = []
    for number in range(head.parts):
        packed = latest.get(part_key(head.epoch, number))
        part = _decode_part(packed) if packed is not None else None
        if part is None or part.epoch != head.epoch:
            raise CheckpointCorrupt("the base", f"part {number}")
        parts.append(part)
    tables = joined(parts)
    rows = rows_in(tables)
    return Base(head, tables, rows)


class Bases:
    """Writes a base when enough changed since the last one, in portions.

    The tables are copied as they are, which is quick; each checkpoint then packs a portion.
    """

    def __init__(
        self, head: FleetHead, tables: Callable[[], Mapping[TableName, Table]], *, shard: int = 0
    ) -> None:
        """`tables` returns copies of the arrays that belong to the head as they are now.

        Shards change alike, so the first interval of each is shortened differently: a worker has the copies
        of only a few of them at a time.
        """
        self._share = 1.0 - shard * _GOLDEN % 1.0
        """Share of the time between two bases that passes before the first one."""
        self._head = head
        self._tables = tables
        self._followed = head.followed
        self._seen = head.followed
        """Changes followed when `take` was last called."""
        self._made_at: float | None = None
        self._waiting: Iterator[tuple[bytes, bytes]] | None = None

    def take(self, now: float, entries: int, latest: float) -> list[tuple[bytes, bytes]]:
        """Return the (key, value) records to commit at wall clock `now`; often none.

        A base of `entries` rows is worth writing once a good part of them changed. `latest` is the
        latest event time.
        """
        if self.due(now, entries, latest):
            self.begin(now)
        self._seen = self._head.followed
        records: list[tuple[bytes, bytes]] = []
        size = 0
        while self._waiting is not None and size < BYTES_AT_ONCE:
            record = next(self._waiting, None)
            if record is None:
                self._waiting = None
            else:
                records.append(record)
                size += len(record[1])
        return records

    def begin(self, now: float) -> None:
        """Copy the tables, which takes as long as copying that much memory; a base of them follows."""
        self._head.epoch += 1
        tables = self._tables()
        self._waiting = self._base(_decode_head(_encode(self._head)), tables)
        self._followed = self._head.followed
        self._made_at = now
        self._share = 1.0

    def due(self, now: float, entries: int, latest: float) -> bool:
        """Return whether a base is to begin at wall clock `now`."""
        if self._waiting is not None:
            return False
        # A clock that was set back must not delay it.
        self._made_at = now if self._made_at is None else min(now, self._made_at)
        changes = self._head.followed - self._followed
        catching_up = self._head.followed != self._seen and now - latest > CATCHING_UP_SECONDS
        turnover = _TURNOVER_CATCHING_UP if catching_up else _TURNOVER
        if changes >= max(MIN_CHANGES, turnover * entries) * self._share:
            return True
        return changes > 0 and now - self._made_at >= MAX_SECONDS * self._share

    def _base(self, head: FleetHead, tables: Mapping[TableName, Table]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the records of a base; `head` and `tables` are of the same moment."""
        head.parts, head.format = 0, FORMAT
        for part in parts_of(head.epoch, tables):
            yield part_key(head.epoch, head.parts), _encode(part)
            head.parts += 1
        self._head.parts = head.parts
        yield HEAD_KEY, _encode(head)
