"""Much that waits for a checkpoint round brings it forward, and holds applying while one is made."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any, cast

from pipeline.worker.agent import Agent
from pipeline.worker.checkpoint.rounds import CheckpointRounds
from pipeline.worker.roles.replica import ReplicaRole
from pipeline.worker.telemetry import WorkerMetrics
from schemas.settings import Settings
from tests.support.patience import PATIENCE


class Rounds:
    """Notes how much waits when a round is made, and saves it."""

    holding = False

    def __init__(self) -> None:
        self.found: list[list[int]] = []
        self.holds = 0
        self.made = asyncio.Event()

    async def save(self, owned: list[Any]) -> float:
        self.found.append([one.unsaved for one in owned])
        for one in owned:
            one.unsaved = 0
        self.made.set()
        return 0.0

    def hold_to_the_end(self) -> None:
        self.holds += 1


def partition() -> Any:
    return SimpleNamespace(unsaved=0, newest=0.0, state=SimpleNamespace(next_offset=0))


async def test_a_round_is_made_at_once_when_as_much_waits_as_may() -> None:
    settings, rounds = Settings(), Rounds()
    role = ReplicaRole(settings, shards=8)
    agent = Agent(
        settings,
        role,
        cast(CheckpointRounds, rounds),
        WorkerMetrics(),
        topics={},
        fatal=lambda error: None,
        joined=lambda group, member: None,
    )
    partitions = [partition(), partition()]
    agent.owned = {0: partitions[0], 1: partitions[1]}
    half = role.unsaved_bytes // 2

    def offered(*unsaved: int) -> None:
        for one, size in zip(partitions, unsaved, strict=True):
            one.unsaved = size
        agent._bound_unsaved()

    # The next round is due in an hour.
    saving = asyncio.create_task(agent.checkpoint_every(3600.0, far_behind=lambda: True))
    offered(half, half)
    await asyncio.sleep(0.05)
    assert rounds.found == []
    offered(half, half + 1)
    await asyncio.wait_for(rounds.made.wait(), PATIENCE)
    assert rounds.found == [[half, half + 1]]
    await asyncio.sleep(0.05)
    assert len(rounds.found) == 1, "nothing waits any more"
    assert rounds.holds == 0
    rounds.made.clear()
    offered(2 * role.unsaved_bytes, 1)
    assert rounds.holds == 1
    await asyncio.wait_for(rounds.made.wait(), PATIENCE)
    assert rounds.found[1:] == [[2 * role.unsaved_bytes, 1]]
    saving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await saving
