"""Applies a recording as connector and worker would, in one process and without Kafka."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.recordings.events import RecordedEvents
from pipeline.residency.partition import PartitionState
from pipeline.residency.source import SourceResidency
from pipeline.residency.stream import trust
from schemas.events import EventsRecord
from schemas.rows import FlowRow
from schemas.settings import Worker

_RECORDS_BETWEEN_CUTS = 1000


class Analysis:
    """State of the sources of one recording; `every_batch` or `finish` reads it to its end."""

    def __init__(self, path: Path) -> None:
        """Raises OSError and RecordingError, as reading does."""
        self._recorded = RecordedEvents(path)
        self._records = iter(self._recorded)
        self._state = PartitionState(0, Worker(), shards=1)
        self._flow: dict[tuple[str, int], dict[tuple[str, int, datetime], FlowRow]] = {}
        """Of each source, by medium, group and window: the last row counts."""

    @property
    def torn(self) -> bool:
        """Whether the file ended within a frame."""
        return self._recorded.torn

    def every_batch(self) -> Iterator[dict[str, Any]]:
        """Yield for each sequence number that was applied what was resident after it, per medium."""
        several = self._recorded.sources > 1
        for record in self._records:
            self._apply(record)
            if record.last_seq is None:
                continue
            line: dict[str, Any] = {"seq": record.last_seq}
            if several:
                line["source"] = f"{record.replica}/{record.dp_rank}"
            line["media"] = _media(self._state.sources[(record.replica, record.dp_rank)])
            yield line

    def finish(self) -> None:
        """Read and apply what is left."""
        for record in self._records:
            self._apply(record)

    def summary(self) -> list[dict[str, Any]]:
        """Return what is resident and what came and went, one row per source, medium and group."""
        self._cut()
        return [
            row
            for key, source in self._state.sources.items()
            for row in _rows(source, self._flow.get(key, {}).values())
        ]

    def _apply(self, record: EventsRecord) -> None:
        self._state.apply(self._state.next_offset, record)
        if self._state.next_offset % _RECORDS_BETWEEN_CUTS == 0:
            self._cut()

    def _cut(self) -> None:
        """Take what came and went from the rows collected so far; all else in a cut is not needed."""
        for row in self._state.cut(self._recorded.now).rows:
            if isinstance(row, FlowRow):
                of_source = self._flow.setdefault((row.replica, row.dp_rank), {})
                of_source[row.medium, row.group_idx, row.window] = row


def _media(source: SourceResidency) -> dict[str, dict[str, int]]:
    media: dict[str, dict[str, int]] = {}
    for pool in source.occupancy():
        figures = media.setdefault(pool.medium, {"physical": 0, "distinct": 0})
        figures["physical"] += pool.entries
        figures["distinct"] += pool.blocks
    return media


def _rows(source: SourceResidency, flow: Collection[FlowRow]) -> list[dict[str, Any]]:
    head = source.head
    pools: dict[tuple[str, int], dict[str, Any]] = {}
    for pool in head.pools:
        key = pool.medium, pool.group_idx
        of_pool = [row for row in flow if (row.medium, row.group_idx) == key]
        pools[key] = {
            "replica": head.replica,
            "dp_rank": head.dp_rank,
            "medium": pool.medium,
            "group_idx": pool.group_idx,
            "physical": 0,
            "distinct": 0,
            "tokens": 0,
            "stored": sum(row.stored_blocks for row in of_pool),
            "removed": sum(row.removed_blocks for row in of_pool),
            "cleared": sum(row.cleared_blocks for row in of_pool),
            "trust": trust.of(head.trust, pool.medium).trust,
        }
    for part in source.occupancy():
        figures = pools[part.medium, part.group_idx]
        figures["physical"] += part.entries
        figures["distinct"] += part.blocks
        figures["tokens"] += part.tokens
    return [pools[key] for key in sorted(pools)]
