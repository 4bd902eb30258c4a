"""Events that limits of a source keep out of the state: counted, and told of at a limited rate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import structlog

from connectors.process.limited_log import LogLimiter
from pipeline.kafka.refusal import SourceName
from pipeline.worker.telemetry import WorkerMetrics
from schemas.reasons import LimitReason

_log = structlog.get_logger(__name__)


class LeftOutEvents:
    """Tells what one partition has left out."""

    def __init__(self, metrics: WorkerMetrics) -> None:
        self._metrics = metrics
        self._limiter = LogLimiter()

    def add(self, found: Iterable[tuple[SourceName, Mapping[LimitReason, int]]]) -> None:
        """Count the events of each source, by reason."""
        for source, reasons in found:
            for reason, events in reasons.items():
                self._metrics.left_out.labels(reason).inc(events)
                if (suppressed := self._limiter.admit(reason)) is not None:
                    _log.error(
                        "a source exceeds a limit: its figures are degraded (docs/operations.md#limits)",
                        replica=source.replica,
                        dp_rank=source.dp_rank,
                        reason=reason,
                        events_left_out=events,
                        **suppressed,
                    )
