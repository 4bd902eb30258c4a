"""Publishes a trace's events from replicas that exist only as prefix caches and sockets."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import zmq

from pipeline.simulator.addresses import AddressPlan, hash_scheme, opened_publisher, replica_address
from pipeline.simulator.config_file import ReplicaAddress
from pipeline.simulator.engine.truth import wire_hash
from pipeline.simulator.metrics_endpoint import EngineFigures, MetricsEndpoint, Prompts, exposition
from pipeline.simulator.traffic.routing import Routing, check_roles, role_of
from pipeline.simulator.traffic.trace import TraceReplica, hit_rates, routed
from pipeline.simulator.wire.encoding import encoded_batch
from pipeline.simulator.wire.eras import DEFAULT_ERA, ERAS
from pipeline.simulator.wire.hashing import HashForm
from pipeline.traces.trace import TraceRequest


@dataclass(frozen=True, slots=True)
class TraceFleetSettings:
    """How to play a trace. `budget` counts blocks of `block_size` tokens per replica, None: endless."""

    block_size: int
    replicas: int = 1
    prefill_replicas: int = 0
    """This many of the first replicas compute prompts for the others, which pull them; 0: each does both."""
    routing: Routing = "round-robin"
    budget: int | None = None
    model: str = "simulated"
    eras: tuple[str, ...] = (DEFAULT_ERA,)
    hash_form: HashForm | None = None
    seed: int = 0
    base_time: float | None = None
    """Epoch seconds of the trace's time 0; None: the last request is at the present time."""
    speed: float | None = None
    """Trace seconds per second; None: as fast as the subscriber receives."""
    topic: str = ""
    addresses: AddressPlan = field(default_factory=AddressPlan)
    truth_directory: Path | None = None


class TraceFleet:
    """Opens the sockets at once; `play` publishes every request's events in order, losing none."""

    def __init__(self, settings: TraceFleetSettings) -> None:
        """Raises ValueError if no replica is left to decode."""
        check_roles(settings.replicas, settings.prefill_replicas)
        self.settings = settings
        self._context = zmq.Context()
        self._eras = [ERAS[settings.eras[n % len(settings.eras)]] for n in range(settings.replicas)]
        self._names = [f"sim-{number}" for number in range(settings.replicas)]
        self.replicas = [TraceReplica(settings.block_size, settings.budget) for _ in self._names]
        self.publishers = [
            opened_publisher(
                settings.addresses,
                self._context,
                era,
                (number, 0),
                (settings.replicas, 1),
                settings.topic,
                lossless=True,
            )
            for number, era in enumerate(self._eras)
        ]
        self._metrics: MetricsEndpoint | None = None
        plan = settings.addresses
        if plan.metrics_port is not None:
            pages = {
                name: self._page(replica, self._role(number))
                for number, (name, replica) in enumerate(zip(self._names, self.replicas, strict=True))
            }
            self._metrics = MetricsEndpoint(pages, plan.host, plan.metrics_port)
        self._stopped = threading.Event()

    def addresses(self) -> list[ReplicaAddress]:
        """Return where each replica listens."""
        return [
            replica_address(
                name,
                self.settings.model,
                publisher,
                self._metrics.url(name) if self._metrics else None,
                1,
                hash_scheme(era, self._form(number), self.settings.block_size),
                self._role(number),
            )
            for number, (name, publisher, era) in enumerate(
                zip(self._names, self.publishers, self._eras, strict=True)
            )
        ]

    def wait_subscribers(self, timeout_seconds: float) -> bool:
        """Wait until every replica has a subscriber; False when one has none in time."""
        deadline = time.monotonic() + timeout_seconds
        return all(
            publisher.wait_subscribers(1, max(0.0, deadline - time.monotonic()))
            for publisher in self.publishers
        )

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
                payload = encoded_batch(
                    self._eras[number], base + request.seconds, events, 0, self._form(number)
                )
                self.publishers[number].publish(payload)

    def stop(self) -> None:
        """End `play` before its next request."""
        self._stopped.set()

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
                            [0, wire_hash(replica.digest(hash_id), self._form(number)), copies]
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
        return hit_rates(each.counters for each in self.replicas[: self.settings.prefill_replicas or None])

    def write_truth(self) -> None:
        """Write `trace.truth.json` into the truth directory."""
        directory = self.settings.truth_directory
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "trace.truth.json").write_text(json.dumps(self.truth()))

    def close(self) -> None:
        """Close sockets and the metrics endpoint; waits a bounded time for what is queued."""
        if self._metrics:
            self._metrics.close()
        for publisher in self.publishers:
            publisher.close()
        self._context.term()

    def _form(self, number: int) -> HashForm:
        return self.settings.hash_form or self._eras[number].hash_form

    def _role(self, number: int) -> str | None:
        return role_of(number, self.settings.prefill_replicas)

    def _page(self, replica: TraceReplica, role: str | None) -> Callable[[], str]:
        def page() -> str:
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

        return page
