"""Example records of the residency topic: every kind of change."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from pipeline.generated.examples.blocks import (
    ANSWER,
    COARSE,
    DOMAIN,
    FINE,
    INCARNATION,
    PROMPT,
    START,
    packed,
)
from schemas.residency import (
    CLEARED,
    EVICTED,
    EXPIRED,
    FILLED,
    SUBSUMED,
    ResidencyChanges,
    ResidencyRecord,
    SourceChanges,
)
from schemas.trust import Trust


def _changes(medium: str, *changes: tuple[int, int, float, int]) -> ResidencyChanges:
    hashes, kinds, times, block_sizes = zip(*changes, strict=True)
    return ResidencyChanges(
        medium=medium,
        group_idx=0,
        hashes=packed(*hashes),
        kinds=bytes(kinds),
        times=struct.pack(f"<{len(times)}d", *times),
        block_sizes=struct.pack(f"<{len(block_sizes)}I", *block_sizes),
    )


def _residency_record(
    offset: int,
    changes: Sequence[ResidencyChanges],
    trust: Trust = "complete",
) -> ResidencyRecord:
    source = SourceChanges(
        replica="vllm-0",
        model="qwen3-32b",
        hash_domain=DOMAIN,
        dp_rank=0,
        incarnation=INCARNATION,
        trust=trust,
        changes=list(changes),
        receives=True,
    )
    return ResidencyRecord(partition=3, shard=4, next_offset=offset, sources=[source])


def _prompt_and_answer() -> ResidencyChanges:
    changes = _changes(
        "gpu",
        *((block, FILLED, START, 16) for block in PROMPT),
        (ANSWER[0], FILLED, START + 0.25, 16),
        (ANSWER[0], EVICTED, START + 0.5, 16),
    )
    filled = len(PROMPT) + 1
    changes.roots = packed(*[PROMPT[0]] * filled)
    changes.depths = struct.pack(f"<{filled}H", *range(1, filled + 1))
    changes.loras, changes.lora_codes = ["sql"], struct.pack(f"<{filled}H", *[1] * filled)
    return changes


def residency_examples() -> dict[str, ResidencyRecord]:
    """Return {name: record}."""
    return {
        "filled_and_evicted": _residency_record(
            812,
            [
                _prompt_and_answer(),
                _changes("cpu", (ANSWER[0], FILLED, START + 0.5, 16)),
            ],
        ),
        "cleared": _residency_record(
            845,
            [_changes("gpu", *((block, CLEARED, START + 1.75, 16) for block in PROMPT))],
            trust="degraded",
        ),
        "fine_blocks": _residency_record(
            861,
            [
                _changes(
                    "gpu",
                    (FINE[0], FILLED, START + 2.0, 64),
                    (FINE[1], FILLED, START + 2.0, 64),
                    (COARSE, FILLED, START + 2.5, 2176),
                    (FINE[0], SUBSUMED, START + 2.5, 64),
                    (FINE[1], EXPIRED, START + 3602.0, 64),
                )
            ],
            trust="partial",
        ),
    }
