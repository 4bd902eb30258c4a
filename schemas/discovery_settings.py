"""Settings of where engines are found: named replicas, DNS, Kubernetes, endpoints that connectors bind."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Port = Annotated[int, Meta(ge=1, le=65535)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Role = Literal["", "prefill", "decode", "both"]
"""Of a replica: `decode` and `both` receive KV that others computed, `prefill` does not."""
Namespace = Annotated[str, Meta(pattern=r"^(\*|[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)$")]


class Replica(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One engine deployment: `dp_ranks` event streams, rank r on port + r."""

    id: Name
    """Unique; the Kafka key and the `replica` column of tables."""
    model: Name
    """As tables show it; part of the hash domain."""
    endpoint: Annotated[str, Meta(pattern="^(tcp|ipc)://")]
    """The engine's ZMQ publisher of KV events, rank 0."""
    replay_endpoint: Annotated[str, Meta(pattern="^(tcp|ipc)://")] | None = None
    """The engine's ZMQ replay socket, rank 0."""
    metrics_url: Annotated[str, Meta(pattern="^https?://")] | None = None
    """The engine's Prometheus page: capacity, hit counters, prefill time."""
    dp_ranks: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Data-parallel ranks, each an event stream of its own."""
    first_rank: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """The first of them; TensorRT-LLM counts ranks over all hosts, and publishes on port + that."""
    tenant: Name = "default"
    """Goes into every record; part of the hash domain."""
    hash_scheme: Name = "vllm-sha256-int64"
    """How the engine hashes blocks; part of the hash domain, inside which alone hashes compare."""
    topic: str = ""
    """ZMQ subscription prefix; empty takes every topic."""
    shared_sequence: bool = False
    """The publisher numbers messages of several emitters together, each under a topic: `topic` is the whole
    one of this emitter."""
    role: Role = ""
    """`decode`, `both`: it receives KV that others computed; `prefill`: it does not; empty: its counters show
    it."""

    @property
    def ranks(self) -> range:
        """Data-parallel ranks that it has."""
        return range(self.first_rank, self.first_rank + self.dp_ranks)


class DnsName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host name, such as that of a headless service. Each address is a replica with id `address:port`."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=253)]
    """Name that the system's resolver knows."""
    model: Name
    """Model of all its engines."""
    port: Port = 5557
    """Port of the engines' ZMQ publishers, rank 0."""
    replay_port: Port | None = None
    """Port of their replay sockets, rank 0."""
    metrics_port: Port | None = None
    """Port of their Prometheus pages, `http://address:port/metrics`."""
    family: Literal["ipv4", "ipv6"] = "ipv4"
    """Kind of address to take."""
    dp_ranks: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Like that of a replica."""
    tenant: Name = "default"
    """Like that of a replica."""
    hash_scheme: Name = "vllm-sha256-int64"
    """Like that of a replica."""
    topic: str = ""
    """Like that of a replica."""
    role: Role = ""
    """Like that of a replica."""


class Kubernetes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pods that the Kubernetes API lists by labels. Each is a replica; its name is the id."""

    preset: Literal["vllm", "llm-d", "kserve", "aibrix", "production-stack", "dynamo"] = "vllm"
    """Stack that runs the engines: gives selector, labels and ports that are not set."""
    namespaces: tuple[Namespace, ...] = ()
    """Empty: that of the connector. `["*"]`: all. With `*` or more than one, ids are `namespace/pod`."""
    selector: str = ""
    """As `kubectl get pods --selector` takes it; empty: that of the preset."""
    model: Name | None = None
    """Model of pods that have it in no annotation, label or topic."""
    model_label: str = ""
    """Label with the model; empty: that of the preset."""
    port: Port = 5557
    """Of a pod's first rank, unless an annotation, the engine or a port named `kv-events` gives it."""
    port_base: Port | None = None
    """Port of rank 0, where ranks are counted over several pods and rank r is on this + r."""
    replay_port: Port | None = None
    """Of the replay socket, unless something else gives it; further ranks count on."""
    http_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    """Of the engines' HTTP servers; not set: that of the preset; 0: they are never asked."""
    metrics_port: Port | None = None
    """Of their Prometheus pages, `http://address:port/metrics`; not set: `http_port`."""
    dp_ranks: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Ranks of each pod, unless an annotation or the engine gives them."""
    index_label: str = ""
    """Label with a pod's number in its engine; its first rank is that times its ranks."""
    max_replicas: Annotated[int, Meta(ge=1)] = 1000
    """Most pods at a time, the oldest first; others are counted and left out."""
    tenant: Name = "default"
    """Like that of a replica."""
    hash_scheme: Name = "vllm-sha256-int64"
    """Like that of a replica."""
    topic: str = ""
    """Like that of a replica."""
    role: Role = ""
    """Role of pods without one in an annotation or label (docs/pods.md); empty: as of a replica."""
    api_url: Annotated[str, Meta(pattern="^(https?://[^/?#@]+)?$")] = ""
    """API server; empty: that of the cluster that the connector runs in."""
    token_file: str = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    """Token of the login, read for every request; empty: none."""
    ca_file: str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
    """Trusted certificates (PEM); empty: the system's own."""


class BoundEndpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An endpoint that engines connect to, with topic `kv@<pod>@<model>`; each pod becomes a replica."""

    endpoint: Annotated[str, Meta(pattern="^tcp://")]
    """Where to listen for rank 0: `tcp://*:5557`, `tcp://10.0.0.5:5557`. Rank r connects to port + r."""
    dp_ranks: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Ports to listen on, one for each rank that engines may have."""
    model: Name | None = None
    """Model of all engines that connect; not set: that of the topic."""
    replay_endpoint: Annotated[str, Meta(pattern="^tcp://")] | None = None
    """Replay socket of rank 0, such as `tcp://{pod}:5657`: `{pod}` is the topic's, without a port."""
    metrics_url: Annotated[str, Meta(pattern="^https?://")] | None = None
    """Prometheus page of a pod, such as `http://{pod}:8000/metrics`."""
    max_replicas: Annotated[int, Meta(ge=1)] = 1000
    """Most pods at a time; topics of others are counted and refused."""
    tenant: Name = "default"
    """Like that of a replica."""
    hash_scheme: Name = "vllm-sha256-int64"
    """Like that of a replica."""
    role: Role = ""
    """Like that of a replica."""


class Discovery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a running connector learns of engines that come and go."""

    dns: tuple[DnsName, ...] = ()
    """Names to resolve."""
    kubernetes: tuple[Kubernetes, ...] = ()
    """Pods to read, by their labels."""
    bind: tuple[BoundEndpoint, ...] = ()
    """Endpoints that engines connect to."""
