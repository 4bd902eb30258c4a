"""A fleet of simulated engines under chat traffic, paced by a clock that the caller passes in."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline.simulator.any_fleet import AnyFleet, AnyFleetSettings
from pipeline.simulator.engine.settings import HYBRID_GROUPS, EngineSettings
from pipeline.simulator.metrics_endpoint import EngineFigures, Prefill, Prompts, exposition
from pipeline.simulator.source import Source
from pipeline.simulator.traffic.dispatch import Dispatch
from pipeline.simulator.traffic.schedule import Rerouting, Restart, Scheduled
from pipeline.simulator.traffic.workload import WorkloadSettings, arrivals
from pipeline.simulator.wire.eras import DEFAULT_ERA, ERAS, Era

HYBRID_BLOCK_SIZE = 2176
HYBRID_FINE_BLOCK_SIZE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings(AnyFleetSettings):
    """What to simulate. Blocks and ranks are per replica and per rank; ports are in `addresses`.

    A truth directory also keeps a checkpoint for every batch. Raises ValueError where settings contradict
    each other.
    """

    replicas: int = 4
    dp_ranks: int = 1
    engine: EngineSettings = field(default_factory=EngineSettings)
    """An era without media has no CPU tier."""
    blocks: tuple[int, ...] = ()
    """GPU blocks of a rank, given to the replicas in turn; empty: the number in `engine`."""
    hybrid_replicas: int = 0
    """This many of the last replicas are hybrid Mamba and attention engines, with blocks of 2176 tokens;
    where their era has no groups, they have the default era."""
    hybrid_blocks: int = 64
    random_hash_seeds: bool = False
    """Every rank hashes with a seed of its own, as engines without a fixed PYTHONHASHSEED."""
    workload: WorkloadSettings = field(default_factory=WorkloadSettings)
    schedule: tuple[Scheduled, ...] = ()
    steps_per_second: float = 20.0
    snapshot_sequences: frozenset[int] = frozenset()
    """Sequence numbers after which each source notes its whole state in its truth."""

    def __post_init__(self) -> None:
        AnyFleetSettings.__post_init__(self)
        if self.prefill_replicas and self.hybrid_replicas:
            raise ValueError("where some replicas prefill for others none can be hybrid")

    def hybrid(self, number: int) -> bool:
        """Return whether a replica is hybrid."""
        return number >= self.replicas - self.hybrid_replicas

    def era(self, number: int) -> Era:
        """Return the era of a replica."""
        era = AnyFleetSettings.era(self, number)
        return ERAS[DEFAULT_ERA] if self.hybrid(number) and not era.groups_known else era


class Fleet(AnyFleet[FleetSettings]):
    """Either `run` in real time, or call `advance` with any clock."""

    def __init__(self, settings: FleetSettings, tell: Callable[[str], None] = lambda _: None) -> None:
        """`tell` is called with the text of every scheduled change when it happens."""
        super().__init__(settings, settings.dp_ranks)
        self._tell = tell
        self._to_come = deque(sorted(settings.schedule, key=lambda each: each.seconds))
        self.sources = [
            self._source(number, rank)
            for number in range(settings.replicas)
            for rank in range(settings.dp_ranks)
        ]
        self._serve_metrics()
        self.dispatch = Dispatch(
            self.sources,
            settings.prefill_replicas * settings.dp_ranks,
            settings.routing,
            settings.workload.seed,
        )
        self._arrivals = arrivals(settings.workload)
        self._arrival = next(self._arrivals)
        self._elapsed = 0.0

    def advance(self, seconds: float, now: float) -> int:
        """Run one step of every engine after `seconds` more of traffic; batches carry the time `now`.

        Returns the number of batches published.
        """
        self._elapsed += seconds
        while self._to_come and self._to_come[0].seconds <= self._elapsed:
            self._happen(self._to_come.popleft())
        while self._arrival[0] <= self._elapsed:
            self.dispatch.submit(self._arrival[1])
            self._arrival = next(self._arrivals)
        published = sum(source.step(now) is not None for source in self.sources)
        self.dispatch.hand_over()
        return published

    def run(self, duration_seconds: float | None = None, clock: Callable[[], float] = time.time) -> None:
        """Advance in real time until `stop` is called or the duration is over."""
        period = 1 / self.settings.steps_per_second
        start = due = time.monotonic()
        while duration_seconds is None or due - start < duration_seconds:
            # After a pause of the process, at most one second of missed steps is made up for.
            due = max(due + period, time.monotonic() - 1.0)
            if self._stopped.wait(max(0.0, due - time.monotonic())):
                return
            self.advance(period, clock())

    def _happen(self, scheduled: Scheduled) -> None:
        change = scheduled.change
        if isinstance(change, Rerouting):
            self.dispatch.reroute(change.routing)
        elif isinstance(change, Restart):
            for source in self._ranks(change.replica):
                source.restart()
        elif change.loss == "drop":
            self._ranks(change.replica)[0].publisher.drop_next(change.batches)
        else:
            self._ranks(change.replica)[0].lose_next(change.batches)
        self._tell(scheduled.text)

    def _source(self, number: int, rank: int) -> Source:
        settings, era, engine = self.settings, self.settings.era(number), self.settings.engine
        if settings.role(number) == "decode":
            engine = replace(engine, receives=True, cpu_blocks=0)
        elif not era.media_known:
            engine = replace(engine, cpu_blocks=0)
        if settings.blocks:
            engine = replace(engine, num_blocks=settings.blocks[number % len(settings.blocks)])
        if settings.hybrid(number):
            engine = replace(
                engine,
                num_blocks=settings.hybrid_blocks,
                block_size=HYBRID_BLOCK_SIZE,
                cpu_blocks=0,
                groups=HYBRID_GROUPS,
                fine_block_size=HYBRID_FINE_BLOCK_SIZE,
            )
        if settings.random_hash_seeds:
            engine = replace(engine, hash_seed=f"{settings.workload.seed}/{number}/{rank}")
        return Source(
            self._names[number],
            engine,
            era,
            self.publishers[number * settings.dp_ranks + rank],
            settings.hash_form,
            checkpoints=settings.truth_directory is not None,
            snapshot_sequences=settings.snapshot_sequences,
        )

    def _ranks(self, number: int) -> list[Source]:
        """Return the sources of a replica."""
        return self.sources[number * self.settings.dp_ranks :][: self.settings.dp_ranks]

    def _block_size(self, number: int) -> int:
        return self._ranks(number)[0].engine.settings.block_size

    def _page(self, number: int) -> str:
        pace = self.settings.steps_per_second
        return exposition(self.settings.model, [_figures(source, pace) for source in self._ranks(number)])

    def _truths(self) -> Iterator[tuple[str, dict[str, Any]]]:
        return ((f"{source.replica}-dp{source.rank}", source.truth()) for source in self.sources)


def _figures(source: Source, steps_per_second: float) -> EngineFigures:
    engine = source.engine
    counters = engine.counters
    return EngineFigures(
        source.rank,
        counters.queries,
        counters.hits,
        counters.external_queries,
        counters.external_hits,
        engine.usage,
        engine.settings.block_size,
        engine.settings.num_blocks,
        Prefill(
            counters.finished_requests, counters.prefill_steps / steps_per_second, counters.prefill_tokens
        ),
        Prompts(
            counters.computed,
            counters.hits,
            counters.external_hits - counters.pulled,
            counters.pulled,
            counters.generated,
        ),
    )
