"""Example records of the topic of records set aside: one that names its source, and one that says nothing."""

from __future__ import annotations

from schemas.set_aside import SetAsideRecord

WRITTEN_AT = 1_800_000_000.25


def set_aside_examples() -> dict[str, SetAsideRecord]:
    """Return {name: record}."""
    return {
        "backward_gap": SetAsideRecord(
            topic="kvlens.events.v1",
            partition=3,
            offset=812,
            reason="backward_gap",
            detail="a decoded record that cannot be applied",
            written_at=WRITTEN_AT,
            length=173,
            value=b"\x88\xa7replica\xa6vllm-0",
            replica="vllm-0",
            dp_rank=0,
            sources=1,
        ),
        "malformed": SetAsideRecord(
            topic="kvlens.events.v1",
            partition=3,
            offset=813,
            reason="malformed",
            detail="MessagePack data is malformed: invalid opcode '\\xc1' (byte 0)",
            written_at=WRITTEN_AT,
            length=1,
            value=b"\xc1",
        ),
    }
