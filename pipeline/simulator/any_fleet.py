"""What a fleet has, whatever fills its caches: names, sockets, metrics pages, truth files, and an end."""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Generic, TypeVar

import zmq

from pipeline.simulator.addresses import AddressPlan
from pipeline.simulator.config_file import ReplicaAddress
from pipeline.simulator.metrics_endpoint import MetricsEndpoint
from pipeline.simulator.publisher import Publisher, PublisherSettings
from pipeline.simulator.traffic.routing import Routing, check_roles, role_of
from pipeline.simulator.wire.eras import DEFAULT_ERA, ERAS, Era
from pipeline.simulator.wire.hashing import HashForm


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyFleetSettings:
    """Which replicas there are. Raises ValueError if none of them is left to decode."""

    replicas: int = 1
    prefill_replicas: int = 0
    """This many of the first replicas compute prompts for the others, which pull them; 0: each does both."""
    model: str = "simulated"
    eras: tuple[str, ...] = (DEFAULT_ERA,)
    """Names from `ERAS`, given to the replicas in turn."""
    hash_form: HashForm | None = None
    """Overrides each era's own form."""
    routing: Routing = "round-robin"
    topic: str = ""
    addresses: AddressPlan = field(default_factory=AddressPlan)
    truth_directory: Path | None = None
    """Where `write_truth` puts its files."""

    def __post_init__(self) -> None:
        check_roles(self.replicas, self.prefill_replicas)

    def era(self, number: int) -> Era:
        """Return the era of a replica."""
        return ERAS[self.eras[number % len(self.eras)]]

    def form(self, number: int) -> HashForm:
        """Return the form in which a replica shows its hashes."""
        return self.hash_form or self.era(number).hash_form

    def role(self, number: int) -> str | None:
        """Return the role of a replica, None where each does both."""
        return role_of(number, self.prefill_replicas)


Settings = TypeVar("Settings", bound=AnyFleetSettings)


class AnyFleet(ABC, Generic[Settings]):
    """Opens the sockets at once; a subclass fills the caches, and calls `_serve_metrics` when it has them."""

    def __init__(self, settings: Settings, dp_ranks: int = 1, *, lossless: bool = False) -> None:
        """`lossless`: a full queue makes publishing wait. Raises OSError when an address is taken."""
        self.settings = settings
        self._dp_ranks = dp_ranks
        self._names = [f"sim-{number}" for number in range(settings.replicas)]
        self._context = zmq.Context()
        self._stopped = threading.Event()
        self._metrics: MetricsEndpoint | None = None
        self.publishers: list[Publisher] = []
        with self._closed_if_taken():
            for number, rank in product(range(settings.replicas), range(dp_ranks)):
                self.publishers.append(self._publisher(number, rank, lossless))

    def addresses(self) -> list[ReplicaAddress]:
        """Return where each replica listens."""
        ranks = self._dp_ranks
        return [
            ReplicaAddress(
                name,
                self.settings.model,
                publisher.endpoint,
                publisher.replay_endpoint,
                self._metrics.url(name) if self._metrics else None,
                ranks,
                self._hash_scheme(number),
                role=self.settings.role(number),
            )
            for number, (name, publisher) in enumerate(
                zip(self._names, self.publishers[::ranks], strict=True)
            )
        ]

    def wait_subscribers(self, timeout_seconds: float) -> bool:
        """Wait until every publisher has a subscriber; False when one has none in time."""
        deadline = time.monotonic() + timeout_seconds
        return all(
            publisher.wait_subscribers(1, max(0.0, deadline - time.monotonic()))
            for publisher in self.publishers
        )

    def stop(self) -> None:
        """End what plays after its present step; may be called from a signal handler or another thread."""
        self._stopped.set()

    def write_truth(self) -> None:
        """Write what the engines know about themselves, one `.truth.json` each, if there is a directory."""
        directory = self.settings.truth_directory
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            for name, truth in self._truths():
                (directory / f"{name}.truth.json").write_text(json.dumps(truth))

    def close(self) -> None:
        """Close sockets and the metrics endpoint; waits a bounded time for what is queued."""
        if self._metrics:
            self._metrics.close()
        for publisher in self.publishers:
            publisher.close()
        self._context.term()

    @abstractmethod
    def _block_size(self, number: int) -> int:
        """Return the block size of a replica."""

    @abstractmethod
    def _page(self, number: int) -> str:
        """Return the metrics of a replica."""

    @abstractmethod
    def _truths(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the truth files, by name."""

    def _serve_metrics(self) -> None:
        plan = self.settings.addresses
        if plan.metrics_port is not None:
            pages = {name: partial(self._page, number) for number, name in enumerate(self._names)}
            with self._closed_if_taken():
                self._metrics = MetricsEndpoint(pages, plan.host, plan.metrics_port)

    @contextmanager
    def _closed_if_taken(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            self.close()
            raise

    def _hash_scheme(self, number: int) -> str:
        """Return its name; the GPU's integers compare, whatever form the CPU tier uses."""
        form = self.settings.form(number)
        shown = "uint64" if form == "mixed" else form
        return f"{self.settings.era(number).engine}-sha256-{shown}-{self._block_size(number)}"

    def _publisher(self, number: int, rank: int, lossless: bool) -> Publisher:
        settings = self.settings
        endpoints = settings.addresses.endpoints(number, settings.replicas, self._dp_ranks)
        return Publisher(
            PublisherSettings(
                *endpoints,
                rank,
                settings.topic,
                replay_frames=settings.era(number).replay_frames,
                lossless=lossless,
            ),
            self._context,
            self._stopped,
        )
