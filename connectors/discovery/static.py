"""The sources that the settings list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from connectors.process.addresses import MAX_PORT
from connectors.process.errors import OperatorError
from connectors.sources import Source
from schemas.discovery_settings import Replica
from schemas.settings import hash_domain, rank_endpoint


class ReplicaInvalid(OperatorError):
    """A `[[replicas]]` entry makes no sense."""

    replica: str
    reason: str
    line = "replica {replica!r}: {reason}"


class ListedReplicas:
    """The replicas of settings without a file to watch, as an origin."""

    name = "replicas"
    sharded = True

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._replicas = replicas
        self.sources: list[Source] = []

    async def begin(self) -> None:
        """List the sources. Raises ReplicaInvalid."""
        self.sources = list_sources(self._replicas)

    async def follow(self, changed: Callable[[], None]) -> None:
        """Return at once: they never change."""


def list_sources(replicas: Sequence[Replica]) -> list[Source]:
    """Return the sources of all replicas, rank r on port + r, or on a path with a suffix.

    Raises ReplicaInvalid for a repeated id, a tcp endpoint without a port, and ports beyond 65535.
    """
    for replica, times in Counter(replica.id for replica in replicas).items():
        if times > 1:
            raise ReplicaInvalid(replica, f"listed {times} times; ids must be unique")
    return [_source(replica, rank) for replica in replicas for rank in replica.ranks]


def _source(replica: Replica, rank: int) -> Source:
    replay = replica.replay_endpoint
    return Source(
        replica=replica.id,
        dp_rank=rank,
        model=replica.model,
        tenant=replica.tenant,
        hash_domain=hash_domain(replica.model, replica.hash_scheme, replica.tenant),
        endpoint=_endpoint(replica, replica.endpoint, rank),
        replay_endpoint=None if replay is None else _endpoint(replica, replay, rank),
        topic=replica.topic,
        shared_sequence=replica.shared_sequence,
        metrics_url=replica.metrics_url,
        role=replica.role,
    )


def _endpoint(replica: Replica, endpoint: str, rank: int) -> str:
    if not endpoint.startswith("tcp://"):
        return rank_endpoint(endpoint, rank)
    host, _, port = endpoint.rpartition(":")
    if not (port.isascii() and port.isdigit()) or not host.removeprefix("tcp:"):
        raise ReplicaInvalid(replica.id, f"{endpoint} is not tcp://host:port")
    number = int(port) + rank
    if not 0 < number <= MAX_PORT:
        raise ReplicaInvalid(replica.id, f"rank {rank} of {endpoint} would need port {number}")
    return rank_endpoint(endpoint, rank)
