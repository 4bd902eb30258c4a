"""What sources that receive KV announce, by hand: whose answer counts for a run, and what follows from it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from pipeline.verify.fleet.transfers import run_of
from schemas.residency import CLEARED, FILLED, Decisions, ResidencyChanges, ResidencyRecord, SourceChanges
from schemas.rows import FillsRow
from schemas.settings import Fleet
from tests.support.fleet_recount import agree, compared, rows_of

START = 1_000_000.0
SIZE = 16
"""Tokens of a block."""
ELSEWHERE = 1 << 40
"""A block of another shard."""


def changes(
    times: dict[int, float], kind: int = FILLED, *, group: int = 0, medium: str = "gpu", end: int = 0
) -> ResidencyChanges:
    """Blocks that came or left, each at a time; `end`: the last block of the run that they came with."""
    count = len(times)
    return ResidencyChanges(
        medium,
        group,
        struct.pack(f">{count}Q", *times),
        bytes([kind]) * count,
        struct.pack(f"<{count}d", *times.values()),
        struct.pack(f"<{count}I", *[SIZE] * count),
        ends=struct.pack(f">{count}Q", *[end] * count) if end else b"",
    )


def said(
    replica: str, *parts: ResidencyChanges, incarnation: int = 1, receives: bool = False
) -> SourceChanges:
    return SourceChanges(replica, "m", "d", 0, incarnation, "complete", [*parts], receives)


def records(sources: Sequence[SourceChanges | Decisions]) -> list[ResidencyRecord]:
    return [
        ResidencyRecord(1, 1, 0, [], decisions=one)
        if isinstance(one, Decisions)
        else ResidencyRecord(0, 0, number, [one])
        for number, one in enumerate(sources)
    ]


def checked(log: list[ResidencyRecord]) -> list[Any]:
    """Return the rows of the agent, which are those of the recount."""
    rows = rows_of(log, Fleet())
    agree(compared(log, rows, Fleet()), rows)
    return rows


def test_sessions_and_groups_that_announce_the_same_at_one_time_have_answers_of_their_own() -> None:
    at = START + 1.0
    held = changes({1: START}), changes({1: START}, group=1)
    first = changes({1: at}, end=ELSEWHERE), changes({1: at}, CLEARED)
    second = changes({1: at}, end=ELSEWHERE), changes({1: at}, group=1, end=ELSEWHERE)
    answers = {run_of(ELSEWHERE, at, ("d", 0), *session): known for session, known in SESSIONS.items()}
    log = [
        said("p", *held),
        said("d", *first, receives=True),
        said("d", *second, incarnation=2, receives=True),
        Decisions(1, at, struct.pack("<3Q", *answers), bytes(answers.values())),
    ]
    causes = {
        row.group_idx: (row.filled_blocks, row.peer_blocks, row.transferred_blocks)
        for row in checked(records(log))
        if isinstance(row, FillsRow) and row.replica == "d"
    }
    assert causes == {0: (2, 1, 1), 1: (1, 1, 0)}


SESSIONS = {(1, 0): 0, (2, 0): 1, (2, 1): 0}
"""(Incarnation, group): whether the last block of the run was stored before."""
