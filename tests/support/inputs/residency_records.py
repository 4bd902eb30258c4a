"""Residency records of one kind of change."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from schemas.residency import FILLED, ResidencyChanges, ResidencyRecord, SourceChanges


def changes(
    times: Mapping[int, float], kind: int = FILLED, *, group: int = 0, medium: str = "gpu", end: int = 0
) -> ResidencyChanges:
    """Blocks that came or left, each at a time; `end`: the last block of the run that they came with."""
    count = len(times)
    return ResidencyChanges(
        medium,
        group,
        np.array([*times], ">u8").tobytes(),
        bytes([kind]) * count,
        np.array([*times.values()], "<f8").tobytes(),
        np.full(count, 16, "<u4").tobytes(),
        ends=np.full(count, end, ">u8").tobytes() if end else b"",
    )


def said(
    replica: str,
    *parts: ResidencyChanges,
    incarnation: int = 1,
    receives: bool = False,
    undecided: bool = False,
) -> SourceChanges:
    """Return what is said of a source."""
    return SourceChanges(replica, "m", "d", 0, incarnation, "complete", [*parts], receives, undecided)


def record(source: int, kind: int, blocks: range, at: float, *, medium: str = "gpu") -> ResidencyRecord:
    """Return a record in which blocks of a source, one chain if they are filled, change at once."""
    count = len(blocks)
    part = changes(dict.fromkeys(blocks, at), kind, medium=medium)
    if kind == FILLED:
        part.roots = np.full(count, blocks[0], ">u8").tobytes()
        part.depths = np.arange(1, count + 1, dtype="<u2").tobytes()
    return ResidencyRecord(0, 0, 0, [said(f"r{source}", part)])
