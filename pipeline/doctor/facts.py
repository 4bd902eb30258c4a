"""What the doctor knows before it judges: plain data of one moment. Times are seconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.trust import Trust

SourceId = tuple[str, int]
"""(replica id, data-parallel rank)."""


@dataclass(frozen=True)
class TopicFacts:
    """A topic of the catalogue and what the cluster has of it."""

    name: str
    wanted_partitions: int
    partitions: int
    """0 when it does not exist, or may not be seen."""
    wanted_config: Mapping[str, str]
    config: Mapping[str, str] = field(default_factory=dict)
    """Empty when it could not be read."""
    hidden: bool = False
    """This user may not see it."""
    wanted_replication_factor: int = 1
    replication_factor: int = 1
    """Copies of each partition, the fewest."""
    in_sync: int = 1
    """Of these, how many have all acknowledged records, the fewest."""
    id: str = ""
    """Kafka's unique id of the topic; empty where Kafka does not give it."""


@dataclass(frozen=True)
class GroupFacts:
    """The consumer group of one agent."""

    name: str
    topic: str
    """What it reads."""
    members: int
    waiting: Mapping[int, int]
    """Records not yet taken into a checkpoint, by partition; an empty partition has 0."""
    saved_at: Mapping[int, float]
    """When the newest checkpoint of a partition was written."""
    waiting_since: Mapping[int, float] = field(default_factory=dict)
    """When the oldest waiting record of a partition was written; empty unless checkpoints could be read."""
    rare_checkpoints: bool = False
    """Whether checkpoints are only written now and then, so that their age says nothing."""
    at_most: frozenset[int] = frozenset()
    """Partitions not counted to the end: `waiting` includes offsets there that may be no records."""

    def waiting_in_words(self) -> str:
        """Return how many records wait, in all partitions together."""
        return f"{'up to ' if self.at_most else ''}{sum(self.waiting.values()):,}"


@dataclass(frozen=True)
class ReportsFacts:
    """How far the topic that LMCache's servers write to is read."""

    topic: str
    group: str
    late: Mapping[int, int]
    """Records that have waited for longer than a connector ever takes, by partition; empty if the topic does
    not exist."""


@dataclass(frozen=True)
class LogFacts:
    """A source in the last seconds of the events topic."""

    incarnation: int
    last_seq: int | None
    """Newest sequence number of that incarnation; None when only notices were seen."""
    written_at: float
    """When its newest record was written."""
    settled: tuple[int, int] | None = None
    """(incarnation, sequence number) of the newest record that the tables must show by now."""


@dataclass(frozen=True)
class PositionFacts:
    """Up to where a source has been published, as a connector says."""

    incarnation: int
    seq: int | None
    partition: int = 0
    """Of the events topic."""
    written_at: float = 0.0
    """When that was written."""
    settled: tuple[int, int] | None = None
    """(incarnation, sequence number) of the newest position that the tables must show by now."""


@dataclass(frozen=True)
class SetAsideFacts:
    """A record that a worker set aside within the last hour."""

    place: str
    """Topic, partition and offset, as people write them."""
    reason: str
    source: str
    """The source that it names, empty if it names none."""


@dataclass(frozen=True)
class KafkaFacts:
    """What the broker says."""

    address: str
    unavailable: str | None = None
    """Why nothing could be asked."""
    unanswered: Mapping[str, str] = field(default_factory=dict)
    """What could not be looked at, and why."""
    brokers: int = 1
    """That are in the cluster now."""
    topics: tuple[TopicFacts, ...] = ()
    groups: tuple[GroupFacts, ...] = ()
    log: Mapping[SourceId, LogFacts] = field(default_factory=dict)
    log_seconds: float = 0.0
    """How far back `log` reaches."""
    newest_record_at: float | None = None
    """When the newest record of the events topic was written, within `log_seconds`."""
    positions: Mapping[SourceId, PositionFacts] = field(default_factory=dict)
    saved_topics: Mapping[str, str] = field(default_factory=dict)
    """Ids of the topics that checkpoints are of, by name."""
    set_aside: tuple[SetAsideFacts, ...] = ()
    """Oldest first; the newest thousands of them, if there are so many."""
    reports: ReportsFacts | None = None


@dataclass(frozen=True)
class HealthFacts:
    """The newest row of `stream_health_10s` of a source, and sums over the last hour."""

    window: float
    incarnation: int
    last_seq: int
    last_batch_at: float | None
    connected: bool
    trust: Trust
    drift_blocks: int
    drift_since: float | None
    lag_seconds: float
    gap_batches: int
    replayed_batches: int
    lost_batches: int
    undecodable_events: int
    duplicate_batches: int
    batches: int
    restarts: int


@dataclass(frozen=True)
class SessionFacts:
    """The newest session of a source in `sources`."""

    model: str
    incarnation: int
    opened_at: float
    closed_at: float | None
    closed_reason: str
    engine: str
    wire_era: str
    hash_domain: str
    last_seq: int
    trust: Trust
    trust_since: float
    superseded: int = 0
    """Sessions of this source that began within the last hour and were superseded."""
    openings: tuple[float, ...] = ()
    """When sessions of this source began within the last hour and a bit."""
    remarks: tuple[str, ...] = ()
    """What is odd about the stream: `schemas.reasons.Remark`, some with a colon and what it is about."""


@dataclass(frozen=True)
class HashFacts:
    """Which sources the present session of a source was found to hash like, from `source_hashes`."""

    alone: bool
    """Whether it hashes like no other, though its traffic and theirs keep coming back to first blocks."""
    groups: frozenset[str]
    """Sources that have one in common hash alike."""


@dataclass(frozen=True)
class EngineFacts:
    """What an engine's metrics page said in the last hour, and what the tables say of the same engine."""

    capacity_blocks: int | None
    """GPU blocks that it has, as it said last; None where it does not export that."""
    usage: float | None
    """Share of them in use by running requests when the page was read last."""
    counters: Mapping[str, tuple[int, int]]
    """(hits, queries) in tokens when the page was read last, by cache."""
    computed_tokens: int | None
    """Prompt tokens looked up and not found, from the first to the last reading of the present session."""
    entries: int | None
    """GPU blocks that the tables hold at the end of the window of the last reading; None without a row, and
    where several groups or sizes overlap."""
    stored_tokens: int
    """Stored on the GPU in the last hour, by the tables."""
    trust: Trust


class Unanswered(NamedTuple):
    """Why something could not be looked at, and what to do about that."""

    reason: str
    advice: str


@dataclass(frozen=True)
class StoreFacts:
    """What the tables say."""

    address: str
    """Empty where the settings are without ClickHouse."""
    unavailable: str | None = None
    """Why nothing could be asked."""
    advice: str = "check clickhouse.url and that it runs"
    """What to do about that."""
    unanswered: Mapping[str, Unanswered] = field(default_factory=dict)
    """What could not be looked at."""
    late: tuple[str, ...] = ()
    """What it had no time or memory to answer, or was not asked in time."""
    migrations_missing: tuple[str, ...] = ()
    migrations_changed: tuple[str, ...] = ()
    written_at: float | None = None
    """When `stream_health_10s` was last written."""
    clock: float | None = None
    """Seconds by which its clock is ahead of ours."""
    newest_window: float | None = None
    """Of `stream_health_10s`, however old it is."""
    health: Mapping[SourceId, HealthFacts] = field(default_factory=dict)
    """Of the last hour."""
    sessions: Mapping[SourceId, SessionFacts] = field(default_factory=dict)
    hashes: Mapping[SourceId, HashFacts] = field(default_factory=dict)
    counters_fell: Mapping[SourceId, tuple[float, ...]] = field(default_factory=dict)
    """When one of the engine's own counters was lower than before, within the last hour."""
    engines: Mapping[SourceId, EngineFacts] = field(default_factory=dict)
    """Of sources with a metrics page."""

    @property
    def whole(self) -> bool:
        """Return whether everything was answered: only then is what it does not know really absent."""
        return self.unavailable is None and not self.unanswered and not self.late


@dataclass(frozen=True)
class Facts:
    """All that the doctor knows."""

    at: float
    configured: tuple[SourceId, ...]
    """Sources that the settings name; discovery may know more."""
    kafka: KafkaFacts
    store: StoreFacts

    def sources(self) -> list[SourceId]:
        """Return every source that is configured, or that tables or log know and that is not removed."""
        known = set(self.configured) | set(self.kafka.log) | set(self.store.health)
        known |= {source for source, session in self.store.sessions.items() if session.closed_at is None}
        return sorted(source for source in known if source in self.configured or not self.removed(source))

    def removed(self, source: SourceId) -> bool:
        """Return whether a source ended because it is no longer configured or discovered."""
        session = self.store.sessions.get(source)
        return session is not None and session.closed_reason == "removed"
