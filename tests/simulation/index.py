"""An index that follows the log beside the workers, as `pipeline/index/service.py` does without questions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

from connectors.process.stopping import Stop, done_before
from pipeline.index.following.follower import Follower
from pipeline.index.following.sources import Sources
from pipeline.index.freshness import Freshness
from pipeline.index.telemetry import IndexMetrics
from schemas.settings import Settings
from tests.simulation.edges import Unsaid

_METRICS = cast(IndexMetrics, Unsaid())


class Followed:
    """What the present process of an index knows."""

    def __init__(self) -> None:
        self.sources = Sources()
        self.freshness = Freshness(30.0)

    async def follow(self, settings: Settings, stop: Stop) -> None:
        """Follow the log until `stop`, from the checkpoints on."""
        self.sources, self.freshness = Sources(), Freshness(30.0)
        follower = Follower(settings, self.sources, self.freshness, _METRICS)
        await follower.load()
        await done_before(stop, asyncio.create_task(follower.run()))

    def held(self) -> Mapping[str, set[int]]:
        """Return the blocks of replicas that are complete."""
        return {
            source.residency.head.replica: {
                int(block) for pool in source.residency.pools.counted for block in pool.copies.live()["hash"]
            }
            for source in self.sources.by_number.values()
            if source.residency is not None and source.residency.overall_trust().trust == "complete"
        }
