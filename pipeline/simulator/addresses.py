"""Which ports a simulated fleet listens on."""

from __future__ import annotations

from dataclasses import dataclass

import zmq

from pipeline.simulator.config_file import ReplicaAddress
from pipeline.simulator.publisher import Publisher, PublisherSettings
from pipeline.simulator.wire.eras import Era
from pipeline.simulator.wire.hashing import HashForm


@dataclass(frozen=True, slots=True)
class AddressPlan:
    """Replica n, rank r publishes on `base_port + n * dp_ranks + r`, and answers replays in the same
    order of ports.

    A base port of 0 takes any free port, which works with one rank a replica only.
    """

    host: str = "127.0.0.1"
    base_port: int = 5557
    replay_base_port: int | None = None
    """None follows the publishing ports: 100 higher, or more in a large fleet."""
    metrics_port: int | None = 8000
    """One HTTP server for all replicas; 0 takes a free port, None serves none."""

    def endpoints(self, number: int, replicas: int, dp_ranks: int) -> tuple[str, str]:
        """Return the PUB and ROUTER endpoints of rank 0 of a replica."""
        if self.base_port == 0:
            if dp_ranks > 1:
                raise ValueError("DP ranks need consecutive ports: give a base port")
            return f"tcp://{self.host}:0", f"tcp://{self.host}:0"
        sources = replicas * dp_ranks
        replay_base = self.replay_base_port or self.base_port + max(100, sources)
        if abs(replay_base - self.base_port) < sources:
            raise ValueError(
                f"{sources} sources from port {self.base_port} overlap the replay ports from {replay_base}"
            )
        offset = number * dp_ranks
        return f"tcp://{self.host}:{self.base_port + offset}", f"tcp://{self.host}:{replay_base + offset}"


def opened_publisher(
    plan: AddressPlan,
    context: zmq.Context[zmq.Socket[bytes]],
    era: Era,
    rank: tuple[int, int],
    fleet: tuple[int, int],
    topic: str = "",
    lossless: bool = False,
) -> Publisher:
    """Open the sockets of `rank` = (replica, DP rank) in a fleet of (replicas, ranks each)."""
    endpoint, replay_endpoint = plan.endpoints(rank[0], *fleet)
    return Publisher(
        PublisherSettings(
            endpoint,
            replay_endpoint,
            rank[1],
            topic,
            replay_frames=era.replay_frames,
            lossless=lossless,
        ),
        context,
    )


def replica_address(
    name: str,
    model: str,
    publisher: Publisher,
    metrics_url: str | None,
    dp_ranks: int,
    hash_scheme: str,
    role: str | None = None,
) -> ReplicaAddress:
    """Describe a replica by the sockets of its rank 0."""
    return ReplicaAddress(
        name,
        model,
        publisher.endpoint,
        publisher.replay_endpoint,
        metrics_url,
        dp_ranks,
        hash_scheme,
        role=role,
    )


def hash_scheme(era: Era, form: HashForm, block_size: int) -> str:
    """Return the name of the hash scheme; the GPU's integers compare, whatever form the CPU tier uses."""
    return f"{era.engine}-sha256-{'uint64' if form == 'mixed' else form}-{block_size}"
