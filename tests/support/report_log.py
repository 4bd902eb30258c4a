"""A log of records, with the positions that follow from it, for tests of what takes servers' reports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from connectors.order.records import mention_of
from connectors.positions.ledger import advance
from connectors.sources import Source, SourceKey
from schemas.events import Event, EventsRecord
from schemas.positions import PositionRecord


class ReportLog:
    """Publisher and positions in one: every record is acknowledged at once."""

    def __init__(self) -> None:
        self.records: list[EventsRecord] = []
        self.forgotten: list[SourceKey] = []
        self.free = asyncio.Event()
        self.free.set()
        self.full = False
        self._positions: dict[SourceKey, PositionRecord] = {}

    async def room(self) -> None:
        await self.free.wait()

    def add(self, record: EventsRecord) -> None:
        self.records.append(record)
        mention = mention_of(record)
        advance(self._positions[mention.source], mention)

    async def resume(self, sources: Sequence[Source]) -> dict[SourceKey, PositionRecord]:
        for source in sources:
            position = self._positions.setdefault(source.key, PositionRecord(*source.key, 0, -1))
            position.place = source.place
        return {source.key: msgspec.structs.replace(self._positions[source.key]) for source in sources}

    async def places(self) -> list[tuple[str, str, str]]:
        return [one.place for one in self._positions.values() if one.place is not None and not one.closed]

    def forget(self, source: SourceKey) -> None:
        self.forgotten.append(source)

    def notices(self, replica: str) -> list[Event]:
        """Notices of a source, in their order."""
        return [
            event
            for record in self.records
            if record.replica == replica
            for batch in record.batches
            if batch.seq is None
            for event in batch.events
        ]

    def numbers(self, replica: str) -> list[int]:
        """Numbers of the batches of a source."""
        return [
            batch.seq
            for record in self.records
            if record.replica == replica
            for batch in record.batches
            if batch.seq is not None
        ]


def report(seq: int, instance: str = "a", **more: Any) -> bytes:
    """A server of model `m` stores an object in its memory, or `more`."""
    entry = {"key": {"chunk_hash_hex": "ff" * 16, "model_name": "m", "kv_rank": 1 << 24}, "size_bytes": 3}
    batch = {"instance_id": instance, "incarnation": 5, "seq": seq, "event_type": "store", "tier": "l1"}
    return json.dumps({"batches": [{**batch, "backend": "dram", "entries": [entry], **more}]}).encode()
