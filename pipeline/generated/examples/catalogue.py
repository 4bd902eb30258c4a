"""Example records of every topic."""

from __future__ import annotations

import msgspec

from pipeline.generated.examples.blocks import INCARNATION
from pipeline.generated.examples.checkpoints import checkpoint_examples, fleet_checkpoint_examples
from pipeline.generated.examples.events import FINGERPRINT, events_examples
from pipeline.generated.examples.figures import figures_examples
from pipeline.generated.examples.residency import residency_examples
from schemas.choices import ChoiceRecord
from schemas.positions import PositionRecord
from schemas.set_aside import SetAsideRecord

CONNECTOR = "5b0c1d7e"
DECIDED_AT = 1_767_225_600.5
WRITTEN_AT = 1_800_000_000.25


def position_examples() -> dict[str, PositionRecord]:
    """Return {name: record}: a source before its first batch, in the middle, and closed."""
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


def choice_examples() -> dict[str, ChoiceRecord]:
    """Return {name: record}: one that lost tokens, and one that nobody could judge."""
    return {
        "worse": ChoiceRecord(
            "req-8c1f",
            DECIDED_AT,
            "qwen3-32b",
            "vllm-0",
            blocks=40,
            best_tokens=512,
            chosen_tokens=128,
            best_replica="vllm-3",
            index_age_seconds=0.031,
            trust="partial",
        ),
        "not_judged": ChoiceRecord(
            "req-8c20",
            DECIDED_AT,
            "qwen3-32b",
            "vllm-9",
            blocks=12,
            not_judged="unknown_replica",
            stale=True,
            index_age_seconds=7.5,
        ),
    }


def set_aside_examples() -> dict[str, SetAsideRecord]:
    """Return {name: record}: one that names its source, and one that says nothing."""
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


EXAMPLES: dict[str, dict[str, msgspec.Struct]] = {
    "events": dict(events_examples()),
    "positions": dict(position_examples()),
    "residency": dict(residency_examples()),
    "choices": dict(choice_examples()),
    "figures": figures_examples(),
    "set_aside": dict(set_aside_examples()),
    "checkpoints_replica": checkpoint_examples(),
    "checkpoints_fleet": fleet_checkpoint_examples(),
}
"""Table of `topics.toml` -> name of the example -> record."""
