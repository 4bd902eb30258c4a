"""A fleet of simulated engines under chat traffic, paced by a clock that the caller passes in."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import zmq

from pipeline.simulator.addresses import AddressPlan, hash_scheme, opened_publisher, replica_address
from pipeline.simulator.config_file import ReplicaAddress
from pipeline.simulator.engine.settings import HYBRID_GROUPS, EngineSettings
from pipeline.simulator.metrics_endpoint import EngineFigures, MetricsEndpoint, Prefill, Prompts, exposition
from pipeline.simulator.source import Source
from pipeline.simulator.traffic.dispatch import Dispatch
from pipeline.simulator.traffic.routing import Routing, check_roles, role_of
from pipeline.simulator.traffic.schedule import Rerouting, Restart, Scheduled
from pipeline.simulator.traffic.workload import WorkloadSettings, arrivals
from pipeline.simulator.wire.eras import DEFAULT_ERA, ERAS, Era
from pipeline.simulator.wire.hashing import HashForm

HYBRID_BLOCK_SIZE = 2176
HYBRID_FINE_BLOCK_SIZE = 64


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """What to simulate. Blocks and ranks are per replica and per rank; ports are in `addresses`."""

    replicas: int = 4
    dp_ranks: int = 1
    model: str = "simulated"
    eras: tuple[str, ...] = (DEFAULT_ERA,)
    """Names from `ERAS`, given to the replicas in turn."""
    hash_form: HashForm | None = None
    """Overrides each era's own form."""
    engine: EngineSettings = field(default_factory=EngineSettings)
    """An era without media has no CPU tier."""
    blocks: tuple[int, ...] = ()
    """GPU blocks of a rank, given to the replicas in turn; empty: the number in `engine`."""
    hybrid_replicas: int = 0
    """This many of the last replicas are hybrid Mamba and attention engines, with blocks of 2176 tokens;
    where their era has no groups, they have the default era."""
    hybrid_blocks: int = 64
    prefill_replicas: int = 0
    """This many of the first replicas compute prompts for the others, which pull them; 0: each does both."""
    random_hash_seeds: bool = False
    """Every rank hashes with a seed of its own, as engines without a fixed PYTHONHASHSEED."""
    workload: WorkloadSettings = field(default_factory=WorkloadSettings)
    routing: Routing = "round-robin"
    schedule: tuple[Scheduled, ...] = ()
    steps_per_second: float = 20.0
    topic: str = ""
    addresses: AddressPlan = field(default_factory=AddressPlan)
    truth_directory: Path | None = None
    """Where `write_truth` puts one file a source; also keeps a checkpoint for every batch."""
    snapshot_sequences: frozenset[int] = frozenset()
    """Sequence numbers after which each source notes its whole state in its truth."""


class Fleet:
    """Opens the sockets at once; then either `run` in real time, or call `advance` with any clock."""

    def __init__(self, settings: FleetSettings, tell: Callable[[str], None] = lambda _: None) -> None:
        """`tell` is called with the text of every scheduled change when it happens.

        Raises ValueError where settings contradict each other.
        """
        check_roles(settings.replicas, settings.prefill_replicas)
        if settings.prefill_replicas and settings.hybrid_replicas:
            raise ValueError("where some replicas prefill for others none can be hybrid")
        self.settings = settings
        self._tell = tell
        self._to_come = deque(sorted(settings.schedule, key=lambda each: each.seconds))
        self._context = zmq.Context()
        self._names = [f"sim-{number}" for number in range(settings.replicas)]
        self.sources = [
            self._source(number, rank)
            for number in range(settings.replicas)
            for rank in range(settings.dp_ranks)
        ]
        plan = settings.addresses
        self._metrics: MetricsEndpoint | None = None
        if plan.metrics_port is not None:
            pages = {name: self._page(name) for name in self._names}
            self._metrics = MetricsEndpoint(pages, plan.host, plan.metrics_port)
        self.dispatch = Dispatch(
            self.sources,
            settings.prefill_replicas * settings.dp_ranks,
            settings.routing,
            settings.workload.seed,
        )
        self._arrivals = arrivals(settings.workload)
        self._arrival = next(self._arrivals)
        self._elapsed = 0.0
        self._stopped = threading.Event()

    def addresses(self) -> list[ReplicaAddress]:
        """Return where each replica listens."""
        ranks = self.settings.dp_ranks
        return [
            replica_address(
                name,
                self.settings.model,
                source.publisher,
                self._metrics.url(name) if self._metrics else None,
                ranks,
                hash_scheme(source.era, source.hash_form, source.engine.settings.block_size),
                self._role(number),
            )
            for number, (name, source) in enumerate(zip(self._names, self.sources[::ranks], strict=True))
        ]

    def wait_subscribers(self, timeout_seconds: float) -> bool:
        """Wait until every source has a subscriber; False when one has none in time."""
        deadline = time.monotonic() + timeout_seconds
        return all(
            source.publisher.wait_subscribers(1, max(0.0, deadline - time.monotonic()))
            for source in self.sources
        )

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

    def stop(self) -> None:
        """End `run` after its present step; may be called from a signal handler or another thread."""
        self._stopped.set()

    def write_truth(self) -> None:
        """Write `<replica>-dp<rank>.truth.json` for each source into the truth directory."""
        directory = self.settings.truth_directory
        if directory is None:
            return
        directory.mkdir(parents=True, exist_ok=True)
        for source in self.sources:
            path = directory / f"{source.replica}-dp{source.rank}.truth.json"
            path.write_text(json.dumps(source.truth()))

    def close(self) -> None:
        """Close sockets and the metrics endpoint; waits a bounded time for what is queued."""
        if self._metrics:
            self._metrics.close()
        for source in self.sources:
            source.publisher.close()
        self._context.term()

    def _happen(self, scheduled: Scheduled) -> None:
        change, ranks = scheduled.change, self.settings.dp_ranks
        if isinstance(change, Rerouting):
            self.dispatch.reroute(change.routing)
        elif isinstance(change, Restart):
            for source in self.sources[change.replica * ranks : (change.replica + 1) * ranks]:
                source.restart()
        elif change.loss == "drop":
            self.sources[change.replica * ranks].publisher.drop_next(change.batches)
        else:
            self.sources[change.replica * ranks].lose_next(change.batches)
        self._tell(scheduled.text)

    def _source(self, number: int, rank: int) -> Source:
        settings = self.settings
        hybrid = number >= settings.replicas - settings.hybrid_replicas
        era = self._era(number, hybrid)
        engine = settings.engine
        if self._role(number) == "decode":
            engine = replace(engine, receives=True, cpu_blocks=0)
        elif not era.media_known:
            engine = replace(engine, cpu_blocks=0)
        if settings.blocks:
            engine = replace(engine, num_blocks=settings.blocks[number % len(settings.blocks)])
        if hybrid:
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
        publisher = opened_publisher(
            settings.addresses,
            self._context,
            era,
            (number, rank),
            (settings.replicas, settings.dp_ranks),
            settings.topic,
        )
        return Source(
            self._names[number],
            engine,
            era,
            publisher,
            settings.hash_form,
            checkpoints=settings.truth_directory is not None,
            snapshot_sequences=settings.snapshot_sequences,
        )

    def _role(self, number: int) -> str | None:
        return role_of(number, self.settings.prefill_replicas)

    def _era(self, number: int, hybrid: bool) -> Era:
        era = ERAS[self.settings.eras[number % len(self.settings.eras)]]
        if hybrid and not era.groups_known:
            return ERAS[DEFAULT_ERA]
        return era

    def _page(self, name: str) -> Callable[[], str]:
        sources = [source for source in self.sources if source.replica == name]
        return lambda: exposition(
            self.settings.model, [_figures(source, self.settings.steps_per_second) for source in sources]
        )


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
