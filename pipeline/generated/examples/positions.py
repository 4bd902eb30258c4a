"""Example records of the positions topic: a source before its first batch, in the middle, and closed."""

from __future__ import annotations

from pipeline.generated.examples.blocks import INCARNATION
from pipeline.generated.examples.events import FINGERPRINT
from schemas.positions import PositionRecord

CONNECTOR = "5b0c1d7e"


def position_examples() -> dict[str, PositionRecord]:
    """Return {name: record}."""
    return {
        "published": PositionRecord(
            replica="vllm-0",
            dp_rank=0,
            partition=3,
            offset=811,
            incarnation=INCARNATION,
            seq=25,
            fingerprint=FINGERPRINT,
            connector=CONNECTOR,
        ),
        "nothing_yet": PositionRecord(
            replica="vllm-0", dp_rank=1, partition=3, offset=640, connector=CONNECTOR
        ),
        "closed": PositionRecord(
            replica="vllm-1",
            dp_rank=0,
            partition=6,
            offset=77,
            incarnation=INCARNATION,
            seq=9,
            fingerprint=FINGERPRINT,
            closed=True,
            connector=CONNECTOR,
        ),
    }
