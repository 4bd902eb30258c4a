"""Records of one partition that cannot be applied: counted, and logged at a limited rate.

Which ones: `pipeline.kafka.decoding`, `pipeline.kafka.acceptance`, and `refusal` of the states.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from connectors.process.limited_log import LogLimiter
from pipeline.applying.offered import Offered
from pipeline.kafka.refusal import RecordRefused
from schemas.reasons import SetAsideReason

DETAIL_CHARACTERS = 200
"""Characters that are logged of what is wrong with a record."""

_log = structlog.get_logger(__name__)


class SetAside:
    """Counts and logs the records that one partition sets aside."""

    def __init__(self, topic: str, partition: int, count: Callable[[SetAsideReason], None]) -> None:
        """`count` counts one, by its reason."""
        self.topic = topic
        self.partition = partition
        self._count = count
        self._limiter = LogLimiter()

    def add(self, offered: Offered, refused: RecordRefused) -> None:
        """Count and log a record that is set aside."""
        self._count(refused.reason)
        if (suppressed := self._limiter.admit(refused.reason)) is not None:
            _log.error(
                "record set aside: it cannot be applied",
                topic=self.topic,
                partition=self.partition,
                offset=offered.offset,
                reason=refused.reason,
                detail=refused.detail[:DETAIL_CHARACTERS],
                sources=[
                    f"{replica[:64]}/{'*' if rank is None else rank}" for replica, rank in refused.sources[:3]
                ],
                **suppressed,
            )
