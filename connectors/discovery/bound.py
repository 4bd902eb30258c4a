"""Replicas that connect to us: known by their topic, `kv@<pod>@<model>`. No IO."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from connectors.process.errors import DataError
from connectors.sources import Listening, Peer, Source, SourceKey
from schemas.discovery_settings import BoundEndpoint
from schemas.settings import hash_domain, rank_endpoint

TopicReason = Literal[
    "not_a_kv_topic",  # other than kv@<pod>@<model>
    "bad_pod",  # not a host name or address, with or without a port
    "bad_model",  # empty, longer than 200 characters, or unprintable
    "replica_id_taken",  # a replica of that id is configured, or connects elsewhere
    "too_many_replicas",  # beyond `max_replicas` of the endpoint
    "pod_disputed",  # engines of different models use one pod's name
]

DISPUTE_SECONDS = 10.0
"""A pod may change its topic once nothing was heard under the former one for so long."""
MAX_NAME = 200
_POD = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,190}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]")
_PORT = re.compile(r":[0-9]{1,5}")


class TopicRefused(DataError):
    """A topic that does not name a replica to be read."""

    topic: bytes
    reason: TopicReason
    line = "{topic!r}: {reason}"


@dataclass(slots=True)
class _Bound:
    source: Source
    peer: Peer
    heard_at: float


class BoundReplicas:
    """The sources of engines that connect to us, from the first message of each to its `leave`."""

    def __init__(self, endpoints: Iterable[BoundEndpoint], taken: Callable[[str], bool]) -> None:
        """`taken` returns whether another origin has a replica id."""
        self._taken = taken
        self._endpoints: dict[Listening, BoundEndpoint] = {
            Listening(rank_endpoint(endpoint.endpoint, rank), rank): endpoint
            for endpoint in endpoints
            for rank in range(endpoint.dp_ranks)
        }
        self._bound: dict[SourceKey, _Bound] = {}
        self._pods: dict[str, BoundEndpoint] = {}
        self.version = 0
        """Grows with every change of `sources`."""

    @property
    def listenings(self) -> Sequence[Listening]:
        """Where engines connect to us."""
        return list(self._endpoints)

    @property
    def sources(self) -> list[Source]:
        return [bound.source for bound in self._bound.values()]

    def peer(self, source: SourceKey) -> Peer | None:
        """Return who publishes a source; None if it is one that we connect to."""
        bound = self._bound.get(source)
        return None if bound is None else bound.peer

    def meet(self, peer: Peer, now: float) -> Source:
        """Return the source whose messages come from a peer. Raises TopicRefused."""
        endpoint = self._endpoints[peer.listening]
        pod, model = _parsed(peer.topic, endpoint.model)
        key = (pod, peer.listening.rank)
        bound = self._bound.get(key)
        if bound is not None and bound.peer == peer:
            bound.heard_at = now
            return bound.source
        owner = self._pods.get(pod)
        if owner is None and self._taken(pod):
            raise TopicRefused(peer.topic, "replica_id_taken")
        if owner is None and sum(one is endpoint for one in self._pods.values()) >= endpoint.max_replicas:
            raise TopicRefused(peer.topic, "too_many_replicas")
        if owner is not None and owner is not endpoint:
            raise TopicRefused(peer.topic, "replica_id_taken")
        if bound is not None:
            # A clock that was set back must not prolong it.
            bound.heard_at = min(bound.heard_at, now)
            if now - bound.heard_at < DISPUTE_SECONDS:
                raise TopicRefused(peer.topic, "pod_disputed")
        self._pods[pod] = endpoint
        source = _source(key, model, endpoint, peer)
        self._bound[key] = _Bound(source, peer, now)
        self.version += 1
        return source

    def leave(self, source: SourceKey) -> None:
        """Forget a source; the next message of its engine creates it again."""
        if self._bound.pop(source, None) is not None:
            self.version += 1
        if not any(replica == source[0] for replica, _ in self._bound):
            self._pods.pop(source[0], None)


def _source(key: SourceKey, model: str, endpoint: BoundEndpoint, peer: Peer) -> Source:
    replica, rank = key
    host, _ = _host_and_port(replica)
    replay = endpoint.replay_endpoint
    metrics = endpoint.metrics_url
    return Source(
        replica=replica,
        dp_rank=rank,
        model=model,
        tenant=endpoint.tenant,
        hash_domain=hash_domain(model, endpoint.hash_scheme, endpoint.tenant),
        endpoint=peer.listening.endpoint,
        replay_endpoint=None if replay is None else rank_endpoint(replay.format(pod=host), rank),
        topic=peer.topic.decode(),
        metrics_url=None if metrics is None else metrics.format(pod=host),
        role=endpoint.role,
    )


def is_model_name(text: str) -> bool:
    """Return whether a text from outside can be the name of a model."""
    return 0 < len(text) <= MAX_NAME and text.isprintable()


def _parsed(topic: bytes, configured_model: str | None) -> tuple[str, str]:
    """Return (pod, model); a model may itself contain @."""
    try:
        head, pod, model = topic.decode().split("@", 2)
    except ValueError:  # UnicodeDecodeError is one
        raise TopicRefused(topic, "not_a_kv_topic") from None
    if head != "kv":
        raise TopicRefused(topic, "not_a_kv_topic")
    host, port = _host_and_port(pod)
    if len(pod) > MAX_NAME or not _POD.fullmatch(host) or (port and not _PORT.fullmatch(port)):
        raise TopicRefused(topic, "bad_pod")
    model = configured_model or model
    if not is_model_name(model):
        raise TopicRefused(topic, "bad_model")
    return pod, model


def _host_and_port(pod: str) -> tuple[str, str]:
    """Split a port off, with its colon."""
    if pod.startswith("["):
        host, bracket, port = pod.partition("]")
        return host + bracket, port
    host, colon, port = pod.partition(":")
    return host, colon + port
