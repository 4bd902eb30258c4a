"""Residency records of one kind of change."""

from __future__ import annotations

import numpy as np

from schemas.residency import FILLED, ResidencyChanges, ResidencyRecord, SourceChanges


def record(source: int, kind: int, blocks: range, at: float, *, medium: str = "gpu") -> ResidencyRecord:
    """Return a record in which blocks of a source, one chain if they are filled, change at once."""
    count = len(blocks)
    hashes = np.array(blocks, ">u8").tobytes()
    changes = ResidencyChanges(
        medium,
        0,
        hashes,
        bytes([kind]) * count,
        np.full(count, at, "<f8").tobytes(),
        np.full(count, 16, "<u4").tobytes(),
    )
    if kind == FILLED:
        changes.roots = np.full(count, blocks[0], ">u8").tobytes()
        changes.depths = np.arange(1, count + 1, dtype="<u2").tobytes()
    return ResidencyRecord(0, 0, 0, [SourceChanges(f"r{source}", "m", "d", 0, 1, "complete", [changes])])
