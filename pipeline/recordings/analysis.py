"""Applies a recording as connector and worker would, in one process and without Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.recordings.events import RecordedEvents
from pipeline.residency.partition import PartitionState
from pipeline.residency.source import SourceResidency
from pipeline.residency.stream import trust
from schemas.events import EventsRecord
from schemas.settings import Worker

_RECORDS_BETWEEN_CUTS = 1000


class Analysis:
    """State of the sources of one recording; `every_batch` or `finish` reads it to its end."""

    def __init__(self, path: Path) -> None:
        """Raises OSError and RecordingError, as reading does."""
        self._recorded = RecordedEvents(path)
        self._records = iter(self._recorded)
        self._state = PartitionState(0, Worker(), shards=1)

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
        return [row for source in self._state.sources.values() for row in _rows(source)]

    def _apply(self, record: EventsRecord) -> None:
        self._state.apply(self._state.next_offset, record)
        if self._state.next_offset % _RECORDS_BETWEEN_CUTS == 0:
            # The rows and changes collected so far are not needed; a cut frees them.
            self._state.cut(self._recorded.now)


def _media(source: SourceResidency) -> dict[str, dict[str, int]]:
    media: dict[str, dict[str, int]] = {}
    for pool in source.occupancy():
        figures = media.setdefault(pool.medium, {"physical": 0, "distinct": 0})
        figures["physical"] += pool.entries
        figures["distinct"] += pool.blocks
    return media


def _rows(source: SourceResidency) -> list[dict[str, Any]]:
    pools: dict[tuple[str, int], dict[str, Any]] = {}
    for key, flow in source.pools.flow_since_start().items():
        pools[key] = {
            "replica": source.head.replica,
            "dp_rank": source.head.dp_rank,
            "medium": key[0],
            "group_idx": key[1],
            "physical": 0,
            "distinct": 0,
            "tokens": 0,
            "stored": flow.stored_blocks,
            "removed": flow.removed_blocks,
            "cleared": flow.cleared_blocks,
            "trust": trust.of(source.head.trust, key[0]).trust,
        }
    for pool in source.occupancy():
        figures = pools[pool.medium, pool.group_idx]
        figures["physical"] += pool.entries
        figures["distinct"] += pool.blocks
        figures["tokens"] += pool.tokens
    return [pools[key] for key in sorted(pools)]
