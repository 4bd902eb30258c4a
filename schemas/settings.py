"""The settings of every kvlens process: names, types, bounds and defaults. Reading them is elsewhere."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Port = Annotated[int, Meta(ge=1, le=65535)]
Seconds = Annotated[float, Meta(gt=0)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]


class Kafka(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the log is, and how records are produced."""

    bootstrap_servers: Annotated[str, Meta(min_length=1)] = "127.0.0.1:9092"
    """Comma-separated host:port list."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """How to talk to the brokers; the SSL ones verify the host name."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    """Used with SASL_PLAINTEXT and SASL_SSL."""
    sasl_username: str = ""
    """Used with SASL_PLAINTEXT and SASL_SSL."""
    sasl_password: str = ""
    """Secret; better given as `KVLENS_KAFKA__SASL_PASSWORD_FILE`."""
    ssl_cafile: str = ""
    """File of trusted certificates (PEM); the system's own when empty."""
    ssl_certfile: str = ""
    """Client certificate (PEM), where the brokers ask for one."""
    ssl_keyfile: str = ""
    """Private key of the client certificate (PEM)."""
    compression: Literal["none", "zstd"] = "zstd"
    """Of produced records."""
    record_format: Literal["msgpack", "json"] = "msgpack"
    """Encoding of event records; readers tell it by the `content-type` header."""
    topic_prefix: str = "kvlens"
    """Put before every topic name, with a dot."""
    replication_factor: Annotated[int, Meta(ge=1)] = 1
    """Used when `kvlens topics apply` creates topics."""
    group: Name = "kvlens"
    """Consumer group prefix; agents append their role."""


class ClickHouse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the tables are."""

    url: Annotated[str, Meta(pattern="^https?://")] = "http://127.0.0.1:8123"
    """HTTP interface of the server."""
    database: Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_]*$")] = "kvlens"
    """Database of all kvlens tables; `kvlens migrate` creates it."""
    username: str = "default"
    """Needs INSERT and SELECT on the database, and CREATE for `kvlens migrate`."""
    password: str = ""
    """Secret; better given as `KVLENS_CLICKHOUSE__PASSWORD_FILE`."""
    timeout_seconds: Seconds = 30.0
    """Bound of one insert or query."""


class Connector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How event streams are read and packed into records. Values below the sane minimum are raised to it."""

    record_bytes: Annotated[int, Meta(ge=1, le=4 << 20)] = 32 << 10
    """A run is closed when its packed events reach this size."""
    linger_seconds: Annotated[float, Meta(ge=0, le=60)] = 0.1
    """A run is closed when its first batch is this old; 0 makes one record per batch."""
    hand_over_bytes: Annotated[int, Meta(ge=1 << 16)] = 64 << 20
    """Received frames waiting to be decoded; beyond it the sockets are left unread."""
    max_frame_bytes: Annotated[int, Meta(ge=1 << 10)] = 16 << 20
    """Larger payloads are counted as `frame_too_large` without being decoded."""
    send_timeout_seconds: Seconds = 120.0
    """Bound of one produce call; the same record is retried in order until it is acknowledged."""
    drain_seconds: Seconds = 10.0
    """Time a graceful stop may take to publish what was received."""
    scrape_seconds: Seconds = 5.0
    """Interval of reading the engines' own /metrics."""
    scrape_timeout_seconds: Seconds = 2.0
    """Bound of reading one engine's /metrics."""
    metrics_host: Name = "127.0.0.1"
    """Address that the metrics and health pages listen on; in a pod usually 0.0.0.0."""
    metrics_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Prometheus and health endpoint of the connector; 0 turns it off."""
    forward_session_ids: bool = False
    """Keep the engines' session ids in the records: they are user data, so it is off."""
    silent_seconds: Seconds = 300.0
    """A source that is neither connected nor heard for so long is closed: its blocks leave the fleet."""
    tail_seconds: Seconds = 10.0
    """A source this long without a batch is asked whether the end of its stream was lost."""
    replay_timeout_seconds: Seconds = 5.0
    """A replay to which an engine has added nothing for so long is over."""
    backlog_bytes: Annotated[int, Meta(ge=1 << 16)] = 64 << 20
    """Live batches of all sources that wait for what is missing before them, a source's at most a quarter."""
    shard: Annotated[str, Meta(pattern=r"^[0-9]{1,4}/[0-9]{1,4}$")] = "0/1"
    """Share of the fleet that this connector reads: `i/n`, with i from 0 to n - 1, of n connectors."""


class Worker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the agents keep state and write tables. Values below the sane minimum are raised to it."""

    agents: Literal["both", "replica", "fleet"] = "both"
    """Which agents run in the process: apart, they can be scaled apart."""
    checkpoint_seconds: Seconds = 1.0
    """Interval of writing tables and committing state; also how fresh the tables are."""
    state_directory: str = ""
    """Scratch space of Faust; a temporary directory when empty."""
    clear_scope: Literal["gpu", "all"] = "gpu"
    """Media that an AllBlocksCleared empties."""
    reannounced: Literal["auto", "off"] = "auto"
    """`auto`: stores that only repeat resident blocks (`kv_cache_report_mode=full`) are not counted again."""
    fine_block_age_seconds: Seconds = 3600.0
    """Fine-grained blocks that no event will ever remove are dropped at this age."""
    max_clock_ahead_seconds: Seconds = 5.0
    """Engine timestamps further ahead of ours are replaced by the time of receipt."""
    max_clock_behind_seconds: Seconds = 86400.0
    """Likewise for timestamps further behind."""
    idle_carry_seconds: Seconds = 3600.0
    """A source without any batch gets carried-forward occupancy rows for this long."""
    rollup_seconds: Seconds = 15.0
    """Interval of recomputing the 1 min and 1 h tables where their input changed."""
    stall_seconds: Seconds = 60.0
    """A worker that has lag but makes no progress for this long ends itself, to be restarted."""
    metrics_host: Name = "127.0.0.1"
    """Address that the metrics and health pages listen on; in a pod usually 0.0.0.0."""
    metrics_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Prometheus and health endpoint of the worker; 0 turns it off."""


class Fleet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the fleet agent remembers, per shard of the hash space."""

    horizon_seconds: Seconds = 3600.0
    """Lost blocks are remembered for so long (event time): what comes back later counts as cold."""
    max_ghosts: Annotated[int, Meta(ge=1, le=1 << 30)] = 2_000_000
    """Losses remembered at most; the oldest are forgotten first."""
    sample_rate: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Share of blocks followed, chosen by hash, rounded to one in a whole number; figures are scaled up."""
    hot_prefixes: Annotated[int, Meta(ge=0, le=1000)] = 20
    """Prefixes listed in each window, by duplicated and by refilled tokens each, per hash domain; 0: none."""
    compare_after: Annotated[int, Meta(ge=0, le=1 << 30)] = 256
    """Returns to a first block after which one that shares none counts as hashing differently; 0: never."""


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What cannot be learned from events about a model."""

    name: Name
    """As in the replicas' `model`."""
    kv_bytes_per_token: Annotated[int, Meta(ge=1)]
    """KV-cache bytes of one token, all layers and groups; turns tokens into bytes in `capacity_gain`."""


class Replica(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One engine deployment: `dp_ranks` event streams, rank r on port + r."""

    id: Name
    """Unique name; the Kafka key and the `replica` column of every table."""
    model: Name
    """Model name as it shall appear in the tables; part of the hash domain."""
    endpoint: Annotated[str, Meta(pattern="^(tcp|ipc)://")]
    """The engine's ZMQ publisher of KV events, rank 0."""
    replay_endpoint: Annotated[str, Meta(pattern="^(tcp|ipc)://")] | None = None
    """The engine's ZMQ replay socket, rank 0."""
    metrics_url: Annotated[str, Meta(pattern="^https?://")] | None = None
    """The engine's Prometheus page; gives capacity and the engine's own hit counters."""
    dp_ranks: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Data-parallel ranks, each an event stream of its own."""
    tenant: Name = "default"
    """Stamped on every record; part of the hash domain."""
    hash_scheme: Name = "vllm-sha256-int64"
    """How the engine hashes blocks; part of the hash domain, inside which hashes compare."""
    topic: str = ""
    """ZMQ subscription prefix; empty takes every topic."""


class DnsName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host name, as of a headless service, whose every address is a replica; its id is `address:port`."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=253)]
    """What to resolve, through the system's resolver."""
    model: Name
    """Model of all its engines."""
    port: Port = 5557
    """Port of the engines' ZMQ publishers, rank 0."""
    replay_port: Port | None = None
    """Port of their replay sockets, rank 0."""
    metrics_port: Port | None = None
    """Port of their Prometheus pages, `http://address:port/metrics`."""
    family: Literal["ipv4", "ipv6"] = "ipv4"
    """Kind of address: an engine with one of each must not be read twice."""
    dp_ranks: Annotated[int, Meta(ge=1, le=1024)] = 1
    """As of a replica."""
    tenant: Name = "default"
    """As of a replica."""
    hash_scheme: Name = "vllm-sha256-int64"
    """As of a replica."""
    topic: str = ""
    """As of a replica."""


class BoundEndpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An endpoint that engines connect to, with topic `kv@<pod>@<model>`; each pod becomes a replica."""

    endpoint: Annotated[str, Meta(pattern="^tcp://")]
    """Where to listen for rank 0, as `tcp://*:5557` or `tcp://10.0.0.5:5557`; rank r connects to port + r."""
    dp_ranks: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Ports to listen on, one for each data-parallel rank that engines may have."""
    model: Name | None = None
    """Model of all engines that connect; that of the topic when not set."""
    replay_endpoint: Annotated[str, Meta(pattern="^tcp://")] | None = None
    """Replay socket of rank 0, as `tcp://{pod}:5657`; `{pod}` is the pod of the topic without its port."""
    metrics_url: Annotated[str, Meta(pattern="^https?://")] | None = None
    """Prometheus page of a pod, as `http://{pod}:8000/metrics`."""
    max_replicas: Annotated[int, Meta(ge=1)] = 1000
    """Pods taken at a time; the topics of further ones are refused and counted."""
    tenant: Name = "default"
    """As of a replica."""
    hash_scheme: Name = "vllm-sha256-int64"
    """As of a replica."""


class Discovery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a running connector learns of engines that come and go."""

    file_seconds: Seconds = 2.0
    """Interval of reading the settings file again; changed `[[replicas]]` count once they were read twice."""
    dns_seconds: Seconds = 10.0
    """Interval of resolving each name."""
    dns_timeout_seconds: Seconds = 5.0
    """Bound of one resolution; when it fails the last addresses stay."""
    dns_misses: Annotated[int, Meta(ge=1, le=1000)] = 3
    """Answers in a row without an address before its replica is removed."""
    dns: tuple[DnsName, ...] = ()
    """Names to resolve."""
    bind: tuple[BoundEndpoint, ...] = ()
    """Endpoints that engines connect to."""


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The built-in page of `kvlens serve`, `up` and `demo`. It has no login: put it behind one."""

    host: Name = "127.0.0.1"
    """Address that the page listens on."""
    port: Port = 8080
    """Port that the page listens on; `up` and `demo` take another one if it is taken."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything in `kvlens.toml`."""

    kafka: Kafka = msgspec.field(default_factory=Kafka)
    clickhouse: ClickHouse = msgspec.field(default_factory=ClickHouse)
    connector: Connector = msgspec.field(default_factory=Connector)
    worker: Worker = msgspec.field(default_factory=Worker)
    fleet: Fleet = msgspec.field(default_factory=Fleet)
    page: Page = msgspec.field(default_factory=Page)
    discovery: Discovery = msgspec.field(default_factory=Discovery)
    models: tuple[Model, ...] = ()
    replicas: tuple[Replica, ...] = ()


SECRET_KEYS = frozenset({("kafka", "sasl_password"), ("clickhouse", "password")})
"""Values that `config show` hides and that may be read from a file named by `…_FILE`."""


def hash_domain(model: str, hash_scheme: str, tenant: str) -> str:
    """Return the name of the space inside which block hashes compare."""
    return f"{model}/{hash_scheme}/{tenant}"


def shard_numbers(shard: str) -> tuple[int, int]:
    """Return (i, n) of `connector.shard`; ValueError unless i < n."""
    number, _, shards = shard.partition("/")
    if int(number) >= int(shards):
        raise ValueError(f"shard {shard}: the first number counts from 0 and is smaller than the second")
    return int(number), int(shards)
