"""Publishes a trace's events from replicas that exist only as prefix caches and sockets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.simulator.any_fleet import AnyFleet, AnyFleetSettings
from pipeline.simulator.engine.truth import wire_hash
from pipeline.simulator.metrics_endpoint import EngineFigures, Prompts, exposition
from pipeline.simulator.traffic.trace import TraceReplica, hit_rates, routed
from pipeline.simulator.wire.encoding import encoded_batch
from pipeline.traces.trace import TraceRequest


@dataclass(frozen=True, slots=True)
class TraceFleetSettings(AnyFleetSettings):
    """How to play a trace. `budget` counts blocks of `block_size` tokens per replica, None: endless."""

    block_size: int
    budget: int | None = None
    seed: int = 0
    base_time: float | None = None
    """Epoch seconds of the trace's time 0; None: the last request is at the present time."""
    speed: float | None = None
    """Trace seconds per second; None: as fast as the subscriber receives."""


class TraceFleet(AnyFleet[TraceFleetSettings]):
    """`play` publishes every request's events in order, losing none."""

    def __init__(self, settings: TraceFleetSettings) -> None:
        super().__init__(settings, lossless=True)
        self.replicas = [TraceReplica(settings.block_size, settings.budget) for _ in self._names]
        self._serve_metrics()

    def play(self, requests: Sequence[TraceRequest], clock: Callable[[], float] = time.time) -> None:
        """Publish one batch per request that stored or evicted something; returns early after `stop`.

        Raises PoolExhaustedError when a request is longer than the budget.
        """
        if not requests:
            return
        settings = self.settings
        base = settings.base_time
        if base is None:
            base = clock() - requests[-1].seconds
        start = time.monotonic()
        for number, request in routed(
            requests, settings.replicas, settings.routing, settings.seed, settings.prefill_replicas
        ):
            pause = 0.0
            if settings.speed is not None:
                pause = max(
                    0.0, start + (request.seconds - requests[0].seconds) / settings.speed - time.monotonic()
                )
            if self._stopped.wait(pause) if pause else self._stopped.is_set():
                return
            events = self.replicas[number].serve(request)
            if events:
                era, form = settings.era(number), settings.form(number)
                payload = encoded_batch(era, base + request.seconds, events, 0, form)
                self.publishers[number].publish(payload)

    def wait(self) -> None:
        """Return after `stop`; replays are answered meanwhile."""
        self._stopped.wait()

    def truth(self) -> dict[str, Any]:
        """Return hit rates (0 to 1), and per replica counters and resident blocks."""
        block_rate, token_rate = self.hit_rates()
        return {
            "block_hit_rate": block_rate,
            "token_hit_rate": token_rate,
            "block_size": self.settings.block_size,
            "budget": self.settings.budget,
            "routing": self.settings.routing,
            "replicas": [
                {
                    "replica": name,
                    "last_seq": publisher.last_sequence,
                    "counters": asdict(replica.counters),
                    "resident": sorted(
                        (
                            [0, wire_hash(replica.digest(hash_id), self.settings.form(number)), copies]
                            for hash_id, copies in replica.pool.copies()
                        ),
                        key=str,
                    ),
                }
                for number, (name, publisher, replica) in enumerate(
                    zip(self._names, self.publishers, self.replicas, strict=True)
                )
            ],
        }

    def hit_rates(self) -> tuple[float, float]:
        """Return the hit rates in blocks and in tokens of all replicas that compute prompts, 0 to 1."""
        return hit_rates(each.counters for each in self._computing)

    def played(self) -> int:
        """Return how many requests were played."""
        return sum(each.counters.requests for each in self._computing)

    @property
    def _computing(self) -> list[TraceReplica]:
        return self.replicas[: self.settings.prefill_replicas or None]

    def _block_size(self, number: int) -> int:
        return self.settings.block_size

    def _page(self, number: int) -> str:
        replica, role = self.replicas[number], self.settings.role(number)
        queries, hits = replica.counters.query_tokens, replica.counters.hit_tokens
        pulled = queries - hits if role == "decode" else 0
        figures = EngineFigures(
            0,
            queries,
            hits,
            pulled,
            pulled,
            0.0,  # between requests nothing is in use
            replica.block_size,
            None if replica.budget is None else replica.budget + 1,
            prompts=Prompts(queries - hits - pulled, hits, 0, pulled, 0) if role else None,
        )
        return exposition(self.settings.model, [figures])

    def _truths(self) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "trace", self.truth()
