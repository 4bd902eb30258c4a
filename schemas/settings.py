"""The settings of every kvlens process: names, types, bounds and defaults. Reading them is elsewhere."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.discovery_settings import Discovery, Name, Port, Replica

Seconds = Annotated[float, Meta(gt=0)]


class KafkaLogin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a Kafka is, and how to log in to it. New connections read the files again."""

    bootstrap_servers: Annotated[str, Meta(min_length=1)] = "127.0.0.1:9092"
    """Comma-separated host:port list."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """The SSL ones verify the host name."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = "PLAIN"
    """With the SASL protocols."""
    sasl_username: str = ""
    """With the SASL protocols, except for OAUTHBEARER."""
    sasl_password: str = ""
    """Secret; better `sasl_password_file`."""
    sasl_password_file: str = ""
    """File with the password, instead of `sasl_password`."""
    sasl_token_file: str = ""
    """File with the token of OAUTHBEARER."""
    ssl_cafile: str = ""
    """File of trusted certificates (PEM); empty: the system's own."""
    ssl_certfile: str = ""
    """Client certificate (PEM), if the brokers ask for one."""
    ssl_keyfile: str = ""
    """Its private key (PEM)."""


class Kafka(KafkaLogin, frozen=True, forbid_unknown_fields=True):
    """Where the log is, and how kvlens writes records. New connections read the files of the login again."""

    compression: Literal["none", "zstd"] = "zstd"
    """Of records: `none`, or `zstd` with gzip for figures and choices. Checkpoints have none."""
    record_format: Literal["msgpack", "json"] = "msgpack"
    """Of events, residency and choices. JSON takes more bytes, and more of the workers' time."""
    schema_registry_url: Annotated[str, Meta(pattern=r"^(https?://[^/?#@\s]+(/[^?#@\s]*)?)?$")] = ""
    """Registry with Confluent's API, for what is written as JSON; trusted by `ssl_cafile`."""
    schema_registry_username: str = ""
    """Of its basic authentication, if it wants one."""
    schema_registry_password_file: str = ""
    """File with its password; read at a start."""
    figures: bool = True
    """Write rows of replicas to `figures.v1` as well, for readers without ClickHouse."""
    topic_prefix: str = "kvlens"
    """Beginning of every topic name, before a dot."""
    replication_factor: Annotated[int, Meta(ge=1)] = 1
    """Of each topic that `kvlens topics apply` creates."""
    partitions: Annotated[int, Meta(ge=1, le=1024)] = 8
    """Of the topics that workers share: the most workers; fixed once topics are made."""
    group: Name = "kvlens"
    """Beginning of the names of consumer groups."""


class ClickHouse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the tables are."""

    url: Annotated[str, Meta(pattern="^https?://|^$")] = "http://127.0.0.1:8123"
    """HTTP interface, without a login; without a port it is 8123, with https 8443. Empty: workers write no
    tables, only figures in Kafka and `/fleet/metrics`."""
    database: Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_]*$")] = "kvlens"
    """Database of all tables; `kvlens migrate` creates it."""
    username: str = "default"
    """Its rights: docs/grants.md."""
    password: str = ""
    """Secret; better `password_file`."""
    password_file: str = ""
    """File with the password, instead of `password`; read again when it changes."""
    ssl_cafile: str = ""
    """File of trusted certificates (PEM); empty: the system's own. New connections read it again."""
    ssl_certfile: str = ""
    """Client certificate (PEM), if the server asks for one: the login where there is no password."""
    ssl_keyfile: str = ""
    """Its private key (PEM)."""
    cluster: Annotated[str, Meta(pattern="^[A-Za-z0-9_.-]*$")] = ""
    """Cluster over whose shards tables are spread; empty: one server."""
    engines: Literal["plain", "replicated", "replicated-database"] = "plain"
    """On a cluster: `replicated…` where shards have several replicas, also of whole databases."""
    timeout_seconds: Seconds = 30.0
    """Longest time for one insert or query."""


class Connector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the connector reads streams and packs them into records. It raises values too small to work."""

    record_bytes: Annotated[int, Meta(ge=1, le=4 << 20)] = 32 << 10
    """A run closes when its packed events reach this size, 3 MiB at the latest."""
    linger_seconds: Annotated[float, Meta(ge=0, le=60)] = 0.1
    """A run closes when its first batch is this old; 0 makes one record per batch."""
    hand_over_bytes: Annotated[int, Meta(ge=1 << 16)] = 64 << 20
    """Received frames waiting to be decoded; beyond it sockets are left unread."""
    max_frame_bytes: Annotated[int, Meta(ge=1 << 10)] = 16 << 20
    """Larger payloads are left out (`frame_too_large`)."""
    send_timeout_seconds: Seconds = 120.0
    """Longest time for a produce call; it is repeated until Kafka acknowledges it."""
    drain_seconds: Seconds = 3.0
    """Time to publish what was received in a graceful stop; SIGINT, `up` and `demo` give it less."""
    scrape_seconds: Seconds = 5.0
    """Interval of reading an engine's /metrics."""
    metrics_host: Name = "127.0.0.1"
    """Address of the metrics and health pages; in a pod usually 0.0.0.0."""
    metrics_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Their port; 0: none."""
    forward_session_ids: bool = False
    """Keep session ids in the records, as keyed hashes."""
    forward_salts: bool = False
    """Keep cache salts in the records, as keyed hashes."""
    session_key_file: str = ""
    """File with the key of these hashes."""
    content_hashes: bool = False
    """Hash what blocks hold, so that replicas with other seeds, algorithms or engines compare; the same for
    all connectors, as its key."""
    content_key_file: str = ""
    """File with the key of these hashes; without one, readers of the topics can confirm guesses of a block's
    text."""
    silent_seconds: Seconds = 300.0
    """A source neither connected nor heard for this long is closed: its blocks leave the fleet."""
    tail_seconds: Seconds = 10.0
    """After this long without a batch, the connector asks the engine whether some were lost."""
    replay_timeout_seconds: Seconds = 5.0
    """A replay is over when the engine adds nothing to it for this long."""
    backlog_bytes: Annotated[int, Meta(ge=1 << 16)] = 64 << 20
    """Live batches that wait for missing ones before them; a source may take a quarter."""
    shard: Annotated[str, Meta(pattern=r"^[0-9]{1,4}/[0-9]{1,4}$")] = "0/1"
    """Share of the fleet that it reads: `i/n`, with i from 0 to n - 1."""


class Worker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the agents keep state and write tables. They raise values too small to work."""

    agents: Literal["both", "replica", "fleet"] = "both"
    """Agents in the process; apart they scale apart."""
    checkpoint_seconds: Seconds = 1.0
    """Interval of writing tables and committing state; up to four times as long where much is written, eight
    times while the worker catches up."""
    state_directory: str = ""
    """Scratch space; empty: a temporary one. A worker that died here is taken out of its groups."""
    clear_scope: Literal["gpu", "all"] = "gpu"
    """Media that an AllBlocksCleared without a medium empties; SGLang's empties all."""
    reannounced: Literal["auto", "off"] = "auto"
    """`auto`: stores of resident beginnings (`kv_cache_report_mode=full`) do not count again, until removals
    prove that they were copies. `off`: they are copies, as with `prompt_logprobs`."""
    fine_block_age_seconds: Seconds = 3600.0
    """Age at which fine-grained blocks are dropped, as no event will remove them."""
    max_clock_ahead_seconds: Annotated[float, Meta(gt=0, le=366 * 86_400)] = 5.0
    """The time of receipt replaces engine timestamps further ahead of it, and the log's time those of receipt
    further ahead of that."""
    max_clock_behind_seconds: Seconds = 86400.0
    """The time of receipt replaces engine timestamps further behind it."""
    max_pool_sizes: Annotated[int, Meta(ge=1, le=10_000)] = 256
    """Block sizes of a source, by medium and group: a row a window each; others are left out."""
    max_blocks: Annotated[int, Meta(ge=1, le=1 << 30)] = 20_000_000
    """Resident blocks of a source; stores of batches that may exceed it are left out."""
    max_itemised_blocks: Annotated[int, Meta(ge=1, le=1 << 24)] = 400_000
    """Blocks of a source kept one by one: of hybrid groups, copies that differ in block size; as many of
    known bytes, and as many that were announced again."""
    forget_seconds: Annotated[float, Meta(ge=600)] = 86400.0
    """A source without a record for this long, while others have some, is forgotten; its blocks leave."""
    idle_carry_seconds: Seconds = 3600.0
    """How long a source without a batch still gets occupancy rows."""
    rollup_seconds: Seconds = 15.0
    """Interval of computing minutes and hours again; four times as long while it catches up."""
    stop_seconds: Seconds = 2.5
    """Time to save and to compute minutes in a graceful stop, by SIGINT 2.5 s at most."""
    metrics_host: Name = "127.0.0.1"
    """Address of the metrics and health pages; in a pod usually 0.0.0.0."""
    metrics_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Their port; 0: none."""


class Fleet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the fleet agent remembers, per shard of the hash space."""

    horizon_seconds: Seconds = 3600.0
    """How long lost blocks are remembered (event time); what comes back later counts as cold."""
    max_ghosts: Annotated[int, Meta(ge=1, le=1 << 30)] = 2_000_000
    """Most losses that are remembered; the oldest go first."""
    sample_rate: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Share of blocks that are followed, rounded to one in a whole number; figures are scaled up."""
    hot_prefixes: Annotated[int, Meta(ge=0, le=1000)] = 20
    """Prefixes listed per window and hash domain, by duplicated and by refilled tokens each."""
    order_seconds: Annotated[float, Meta(ge=0, le=60)] = 2.0
    """A change counts this long after its event time: by how much clocks and delays may differ."""
    max_waiting: Annotated[int, Meta(ge=1, le=1 << 30)] = 2_000_000
    """Most changes of a shard, of 170 bytes, that wait for other partitions; beyond it the earliest count."""
    compare_after: Annotated[int, Meta(ge=0, le=1 << 30)] = 256
    """Returns to first blocks until a source that shares none is taken to hash differently; 0: never."""


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Facts about a model that are not in its events."""

    name: Name
    """As in the replicas' `model`."""
    kv_bytes_per_token: Annotated[int, Meta(ge=1)] | None = None
    """KV-cache bytes of one token, all layers and groups; gives the bytes in `capacity_gain`."""
    prefill_tokens_per_second: Annotated[float, Meta(gt=0)] | None = None
    """Prompt tokens that a replica computes in a second, all its GPUs together, where its counters do not
    show it."""
    gpus_per_replica: Annotated[float, Meta(gt=0)] | None = None
    """GPUs of a replica, all its ranks together; without it there are no GPU-seconds nor costs."""
    gpu_hour_price: Annotated[float, Meta(ge=0)] | None = None
    """Price of an hour of one GPU; without it there are no costs. Without its block a model keeps the last
    price (docs/figures.md)."""
    currency: Annotated[str, Meta(min_length=1, max_length=16)] = "USD"
    """Of `gpu_hour_price`; a label, nothing is converted."""


class Prefix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A name for prompts that begin alike, such as a system prompt."""

    first_block: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    """Hash of their first block, as the table of hot prefixes shows it."""
    name: Name
    """What the boards call them."""


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The built-in page of `kvlens serve`, `up` and `demo`."""

    host: Name = "127.0.0.1"
    """Address that it listens on; one that other machines reach needs a token."""
    port: Port = 8080
    """Its port; if it is taken, `up` and `demo` use another one."""
    token: str = ""
    """Viewers log in with it; better in a file. Empty: no login."""
    panel_seconds: Seconds = 20.0
    """After this the store stops a panel's statement."""


class Otlp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fleet's figures for OpenTelemetry. Experimental: names follow its conventions, which are drafts."""

    endpoint: Annotated[str, Meta(pattern=r"^(https?://[^/?#@\s]+(/[^?#@\s]*)?)?$")] = ""
    """Whole URL to post to, such as `http://127.0.0.1:4318/v1/metrics`; empty: none. For a login see
    docs/metrics.md."""


class Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The service of `kvlens index`: who has these blocks."""

    host: Name = "127.0.0.1"
    """Address that it listens on; one that other machines reach needs a token."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8095
    """Its port; 0: one that is free."""
    token: str = ""
    """Callers send it as a bearer token; better in a file. Empty: none."""
    share: Annotated[str, Meta(pattern=r"^[0-9]{1,4}/[0-9]{1,4}$")] = "0/1"
    """Share of the events' partitions, so of the replicas, that it follows: `i/n`, with i from 0 to n - 1."""
    choices: bool = False
    """Take routers' choices by `POST /choices` and write them to Kafka."""


class Lmcache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cache events of LMCache's servers, which the connector reads from Kafka or takes over HTTP."""

    models: str = ""
    """Models of the servers, with commas; others are counted and left out."""
    topic: str = ""
    """Topic that the servers write to, in the Kafka of `[lmcache_kafka]`, or else `[kafka]`; empty: none."""
    group: Name = "kvlens.lmcache"
    """Consumer group that keeps how far the connector has read it."""
    host: Name = "127.0.0.1"
    """Address of `POST /events`; one that other machines reach needs a token."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Its port, and of servers' heartbeats; 0: none."""
    token: str = ""
    """Servers send it as bearer token or as the password in their coordinator's URL; better in a file. Empty:
    none."""
    salt_key_file: str = ""
    """File with the key of hashes of cache salts; without it objects under a salt are counted and left
    out."""
    l2_prefetch_policy: Literal["default", "retain"] = "default"
    """As the servers have it. With `default`, what they load from storage is left out of what memory holds,
    gets and evicts."""
    silent_seconds: Seconds = 3600.0
    """What a server has counts as gone after this long without a report or heartbeat, or 600 s if it made up
    its id."""
    tenant: Name = "default"
    """Part of the hash domain: another one for servers that hash chunks in another way."""

    @property
    def model_names(self) -> tuple[str, ...]:
        """`models`, one by one."""
        return tuple(name for name in (part.strip() for part in self.models.split(",")) if name)


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything in `kvlens.toml`."""

    kafka: Kafka = msgspec.field(default_factory=Kafka)
    clickhouse: ClickHouse = msgspec.field(default_factory=ClickHouse)
    connector: Connector = msgspec.field(default_factory=Connector)
    worker: Worker = msgspec.field(default_factory=Worker)
    fleet: Fleet = msgspec.field(default_factory=Fleet)
    page: Page = msgspec.field(default_factory=Page)
    otlp: Otlp = msgspec.field(default_factory=Otlp)
    index: Index = msgspec.field(default_factory=Index)
    discovery: Discovery = msgspec.field(default_factory=Discovery)
    lmcache: Lmcache = msgspec.field(default_factory=Lmcache)
    lmcache_kafka: KafkaLogin = msgspec.field(default_factory=KafkaLogin)
    models: tuple[Model, ...] = ()
    prefixes: tuple[Prefix, ...] = ()
    replicas: tuple[Replica, ...] = ()

    @property
    def lmcache_login(self) -> tuple[str, KafkaLogin]:
        """The section that says where the topic of LMCache's servers is, and what it says."""
        apart = self.lmcache_kafka != KafkaLogin()
        return ("lmcache_kafka", self.lmcache_kafka) if apart else ("kafka", self.kafka)


SECRET_KEYS = frozenset(
    {
        ("kafka", "sasl_password"),
        ("clickhouse", "password"),
        ("page", "token"),
        ("index", "token"),
        ("lmcache", "token"),
        ("lmcache_kafka", "sasl_password"),
    }
)
"""Values that `config show` hides and that can come from a file named by `…_FILE`."""


def hash_domain(model: str, hash_scheme: str, tenant: str) -> str:
    """Return the name of the space inside which block hashes compare."""
    return f"{model}/{hash_scheme}/{tenant}"


def shard_numbers(shard: str) -> tuple[int, int]:
    """Return (i, n) of `connector.shard`; ValueError unless i < n."""
    number, _, shards = shard.partition("/")
    if int(number) >= int(shards):
        raise ValueError(f"shard {shard}: the first number counts from 0 and is smaller than the second")
    return int(number), int(shards)


def rank_endpoint(endpoint: str, rank: int) -> str:
    """Return the endpoint of a rank, given that of rank 0: port + r, or with ipc the suffix `_dp` r."""
    if rank == 0:
        return endpoint
    if endpoint.startswith("ipc://"):
        return f"{endpoint}_dp{rank}"
    host, _, port = endpoint.rpartition(":")
    return f"{host}:{int(port) + rank}"
