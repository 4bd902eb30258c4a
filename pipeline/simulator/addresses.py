"""Which ports a simulated fleet listens on."""

from __future__ import annotations

from dataclasses import dataclass


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
