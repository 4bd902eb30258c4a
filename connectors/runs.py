"""Collect consecutive batches of one source into runs, the records of `kvlens.events.v1`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.events import Batch, EventsRecord

if TYPE_CHECKING:
    from connectors.source import Source

MAX_RUN_BYTES = 5 << 20
"""A run never grows beyond this by adding to it; with JSON's overhead it stays below the topic's 8 MB."""


class RunBuilder:
    """The open run of one source; closed by size, by age, by a new incarnation or by a flush.

    `record_bytes` and `linger_seconds` are those of `schemas.settings.Connector`. Times are seconds of one
    clock, the caller's.
    """

    def __init__(self, source: Source, *, record_bytes: int, linger_seconds: float) -> None:
        self._source = source
        self._record_bytes = record_bytes if linger_seconds > 0 else 1
        self._linger_seconds = linger_seconds
        self._batches: list[Batch] = []
        self._bytes = 0
        self._opened_at = 0.0
        self._first_seq: int | None = None
        self._last_seq: int | None = None
        self._last_mark = 0
        self._closed: list[EventsRecord] = []
        self._incarnation = 0
        self.duplicates = 0
        """Batches dropped as repeated, to be told in the next record."""

    @property
    def incarnation(self) -> int:
        """What the open run belongs to; 0 until set."""
        return self._incarnation

    @incarnation.setter
    def incarnation(self, incarnation: int) -> None:
        self.flush()
        self._incarnation = incarnation

    @property
    def deadline(self) -> float | None:
        """When the open run is due; None when there is none."""
        return self._opened_at + self._linger_seconds if self._batches else None

    def add(self, batch: Batch, size: int, now: float, mark: int = 0) -> None:
        """Append a batch (`mark`: its payload's fingerprint) or a notice of about `size` packed bytes."""
        if self._bytes and self._bytes + size > MAX_RUN_BYTES:
            self.flush()
        if not self._batches:
            self._opened_at = now
        self._batches.append(batch)
        self._bytes += size
        seq = batch.seq
        if seq is not None:
            if self._first_seq is None:
                self._first_seq = seq
            self._last_seq = seq
            self._last_mark = mark
        if self._bytes >= self._record_bytes:
            self.flush()

    def close_due(self, now: float) -> None:
        """Close the run whose time has come; a clock that was set back does not make it wait longer."""
        if self._batches and not self._opened_at <= now < self._opened_at + self._linger_seconds:
            self.flush()

    def flush(self) -> None:
        """Close the open run, if there is one."""
        if not self._batches:
            return
        source = self._source
        self._closed.append(
            EventsRecord(
                replica=source.replica,
                model=source.model,
                hash_domain=source.hash_domain,
                dp_rank=source.dp_rank,
                incarnation=self._incarnation,
                batches=self._batches,
                first_seq=self._first_seq,
                last_seq=self._last_seq,
                tenant=source.tenant,
                duplicates=self.duplicates,
                last_mark=self._last_mark,
            )
        )
        self._batches = []
        self._bytes = 0
        self._first_seq = self._last_seq = None
        self._last_mark = 0
        self.duplicates = 0

    def take_closed(self) -> list[EventsRecord]:
        """Return the runs closed since the last call, in order."""
        closed, self._closed = self._closed, []
        return closed
