"""Collect consecutive batches of one source into runs, the records of `kvlens.events.v1`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from connectors.normalise.columns import END, FINGERPRINT, SEQ, START
from connectors.normalise.scanned import Scanned
from connectors.normalise.wire import MAX_BATCH_BYTES
from connectors.order.records import PackedRecord
from connectors.sources import Source
from schemas.events import Batch, Closed, EventsRecord

MAX_RUN_BYTES = MAX_BATCH_BYTES
"""Adding to a run never takes it beyond this. As JSON it has up to two and a half times as many bytes, which
is still below the topic's 8 MB."""

Reached = tuple[str, tuple[int, int]]
"""Which of a source's publishers sent a batch, and (that publisher's session, its number of the batch)."""

_encode = msgspec.msgpack.Encoder().encode


@dataclass(slots=True)  # frozen ones take three times as long to make
class _Encoded:
    """Encoded batches."""

    count: int
    data: bytes


class RunBuilder:
    """The open run of one source; closed by size, by age, by a new session or by a flush.

    `record_bytes` and `linger_seconds` are as in `schemas.settings.Connector`; times are the caller's.
    """

    def __init__(
        self,
        source: Source,
        hash_domain: str,
        *,
        record_bytes: int,
        linger_seconds: float,
        opened: Callable[[float], None] = lambda due_at: None,
    ) -> None:
        """`opened` is called for each run that opens, with the time when it is due."""
        self.source = source
        """Records describe it as it is when they are closed."""
        self._hash_domain = hash_domain
        self._opened = opened
        self._record_bytes = min(record_bytes, MAX_RUN_BYTES) if linger_seconds > 0 else 1
        self._linger_seconds = linger_seconds
        self._batches: list[Batch | _Encoded] = []
        self._packed = False
        self._bytes = 0
        self._opened_at = 0.0
        self._first_seq: int | None = None
        self._last_seq: int | None = None
        self._last_fingerprint = 0
        self._closed: list[EventsRecord] = []
        self._incarnation = 0
        self.duplicates = 0
        """Repeated batches that were dropped; the next record reports them."""
        self._emitters: dict[str, tuple[int, int]] = {}

    @property
    def incarnation(self) -> int:
        """That of the open run; 0 until set. Setting it closes the open run."""
        return self._incarnation

    @incarnation.setter
    def incarnation(self, incarnation: int) -> None:
        self.flush()
        self._incarnation = incarnation

    @property
    def deadline(self) -> float | None:
        """When the open run is due; None when there is none."""
        return self._opened_at + self._linger_seconds if self._batches else None

    @property
    def room(self) -> int:
        """How many more bytes close the open run, or the next one."""
        return self._record_bytes - self._bytes

    def add(
        self, batch: Batch, size: int, now: float, fingerprint: int = 0, reached: Reached | None = None
    ) -> None:
        """Append a notice, or a batch with its payload's fingerprint; `size` is its packed bytes.

        `reached` goes into the record that holds the batch.
        """
        if self._packed and batch.events and isinstance(batch.events[-1], Closed):
            self.flush()
        self._append(batch, size, now)
        if batch.seq is not None:
            self._reach(batch.seq, batch.seq, fingerprint)
        if reached is not None:
            self._emitters[reached[0]] = reached[1]
        if self._bytes >= self._record_bytes:
            self.flush()

    def add_scanned(self, scanned: Scanned, first: int, end: int, now: float) -> None:
        """Append the batches of payloads `first` to `end` (exclusive), all of which are done."""
        rows = scanned.rows
        seqs, starts, ends = rows[SEQ], rows[START], rows[END]
        while first < end:
            start = starts[first]
            # As in `add`, the batch that reaches the size is the last one of its run.
            last = min(bisect_left(ends, start + self._record_bytes - self._bytes, first, end), end - 1)
            if last > first and self._bytes + ends[last] - start > MAX_RUN_BYTES:
                last -= 1
            data = scanned.encoded[start : ends[last]].tobytes()
            self._append(_Encoded(last + 1 - first, data), len(data), now)
            self._packed = True
            self._reach(seqs[first], seqs[last], rows[FINGERPRINT][last])
            if self._bytes >= self._record_bytes:
                self.flush()
            first = last + 1

    def add_encoded(
        self, data: bytes, seqs: Sequence[int], fingerprint: int, now: float, looked_at: float
    ) -> None:
        """Append encoded batches of less than `room` bytes; `fingerprint` is that of the last one.

        `opened` is not called for a run that opens with them and is due by `looked_at`: it is closed then.
        """
        self._append(_Encoded(len(seqs), data), len(data), now, looked_at)
        self._packed = True
        self._reach(seqs[0], seqs[-1], fingerprint)

    def _append(
        self, batch: Batch | _Encoded, size: int, now: float, looked_at: float = float("-inf")
    ) -> None:
        if self._bytes and self._bytes + size > MAX_RUN_BYTES:
            self.flush()
        if not self._batches:
            self._opened_at = now
            due_at = now + self._linger_seconds
            if due_at > looked_at:
                self._opened(due_at)
        self._batches.append(batch)
        self._bytes += size

    def _reach(self, first: int, last: int, fingerprint: int) -> None:
        """Note which numbers the batches just appended have."""
        if self._first_seq is None:
            self._first_seq = first
        self._last_seq, self._last_fingerprint = last, fingerprint

    def close_due(self, now: float) -> None:
        """Close the open run if it is due; setting the clock back does not make it wait longer."""
        if self._batches and not self._opened_at <= now < self._opened_at + self._linger_seconds:
            self.flush()

    def flush(self) -> None:
        """Close the open run, if there is one."""
        if not self._batches:
            return
        source = self.source
        kind, batches = (
            (PackedRecord, self._packed_batches()) if self._packed else (EventsRecord, self._batches)
        )
        record = kind(
            replica=source.replica,
            model=source.model,
            hash_domain=self._hash_domain,
            dp_rank=source.dp_rank,
            incarnation=self._incarnation,
            batches=cast(Any, batches),
            first_seq=self._first_seq,
            last_seq=self._last_seq,
            tenant=source.tenant,
            role=source.role,
            duplicates=self.duplicates,
            last_fingerprint=self._last_fingerprint,
            emitters=self._emitters,
        )
        self._closed.append(record)
        self._batches = []
        self._packed = False
        self._bytes = 0
        self._first_seq = self._last_seq = None
        self._last_fingerprint = 0
        self.duplicates = 0
        self._emitters = {}

    def _packed_batches(self) -> msgspec.Raw:
        count = 0
        parts = []
        for batch in self._batches:
            if isinstance(batch, _Encoded):
                count += batch.count
                parts.append(batch.data)
            else:
                count += 1
                parts.append(_encode(batch))
        # An array of `count` entries.
        return msgspec.Raw(b"".join([b"\xdd", count.to_bytes(4, "big"), *parts]))

    def take_closed(self) -> list[EventsRecord]:
        """Return the runs closed since the last call, in order."""
        closed, self._closed = self._closed, []
        return closed
