"""Where a state restored from a checkpoint continues: meanwhile the log may have lost its beginning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from pipeline.applying.state import State
from pipeline.errors import CheckpointAhead

_log = structlog.get_logger(__name__)


def go_on(
    state: State[Any, Any],
    topic: str,
    partition: int,
    *,
    fresh: bool,
    beginning: int,
    end: int,
    lost: Callable[[int], None],
    markers: int = 0,
) -> None:
    """Let a state continue, at the oldest record at the earliest; report what retention removed before.

    `fresh`: there was no checkpoint. `markers`: how many offsets after the last record applied certainly hold
    no record. `lost` counts the records removed. Raises CheckpointAhead where the log ends before.
    """
    if state.required_end > end:
        raise CheckpointAhead(topic, partition, state.required_end, end)
    missing = beginning - state.next_offset
    if fresh or missing <= markers:
        state.next_offset = max(state.next_offset, beginning)
        return
    lost(missing)
    _log.error(
        "retention removed records before they were read: sources of the partition are degraded from "
        "here on; raise retention.ms of the topic, or run more workers",
        topic=topic,
        partition=partition,
        first=state.next_offset,
        last=beginning - 1,
        records=missing,
    )
    state.skip_removed(beginning)
