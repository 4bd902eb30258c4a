"""Errors that stop a step of the pipeline: each carries its data and says in one line what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Literal

from connectors.process.addresses import shown
from connectors.process.errors import DataError, OperatorError

_WHY_CHARACTERS = 200
_KEY_BYTES = 64
StoreLimit = Literal["time", "memory", "turns", "answer"]
"""What a busy store is short of; `answer`: it gave none, so it may also hang."""
COMPUTE_AGAIN = (
    "stop all workers and run `kvlens state rebuild` to compute everything from what the log holds now"
)


class PipelineError(OperatorError):
    """Something that stops a step of the pipeline."""


class KafkaUnavailable(PipelineError):
    """No broker answered, or it refused what we asked."""

    heals = True
    address: str
    reason: str

    def __str__(self) -> str:
        # aiokafka has this word in the name of each error for a missing right.
        refused = "AuthorizationFailed" in self.reason
        advice = (
            "give kafka.sasl_username this right (docs/acls.md)"
            if refused
            else "check kafka.bootstrap_servers and that it runs"
        )
        return f"Kafka at {self.address} cannot be used: {self.reason}; {advice}"


class StoreUnavailable(PipelineError):
    """ClickHouse did not answer, or refused what we asked."""

    url: str
    reason: str
    advice: str = field(default="check clickhouse.url and that it runs", kw_only=True)
    heals: bool = field(default=True, kw_only=True)

    def __str__(self) -> str:
        return f"ClickHouse at {shown(self.url)} cannot be used: {self.reason}; {self.advice}"


class StoreBusy(StoreUnavailable):
    """ClickHouse accepted the connection, but did not finish this statement."""

    lacks: StoreLimit = field(kw_only=True)
    advice: str = field(kw_only=True)
    seconds: float | None = field(default=None, kw_only=True)
    """The time limit of the statement, if it ran out of time and the limit is known."""

    def __str__(self) -> str:
        state = "is busy, or hangs" if self.lacks == "answer" else "is busy"
        return f"ClickHouse at {shown(self.url)} {state}: {self.reason}; {self.advice}"


class TablesMissing(PipelineError):
    """ClickHouse lacks tables or views of this version."""

    heals = True
    database: str
    names: Sequence[str]

    def __str__(self) -> str:
        more = f" and {len(self.names) - 1} more" if len(self.names) > 1 else ""
        return f"database {self.database} lacks {self.names[0]} of this kvlens{more}; run `kvlens migrate`"


class GroupRefused(PipelineError):
    """This user may not join a consumer group."""

    heals = True
    group: str
    line = (
        "this user may not join the consumer group {group}; give kafka.sasl_username Read on it "
        "(docs/acls.md)"
    )


class TransactionsRefused(PipelineError):
    """This user may not write in transactions with an id."""

    heals = True
    transactional_id: str
    line = (
        "this user lacks Write on the transactional id {transactional_id}; "
        "give kafka.sasl_username this right (docs/acls.md)"
    )


class TopicMismatch(PipelineError):
    """A topic's number of partitions does not fit the state that is kept for it."""

    topic: str
    found: int
    wanted: int
    why: str
    line = (
        "topic {topic} has {found} partitions but {wanted} are needed ({why}); "
        "state is bound to partition numbers: take the log to another kafka.topic_prefix with "
        "`kvlens topics copy` (docs/maintenance.md, more partitions), or delete the topic and begin again"
    )


class TopicRefused(PipelineError):
    """The broker did not create a topic."""

    topic: str
    reason: str
    line = "cannot create topic {topic}: {reason}"


class MigrationChanged(PipelineError):
    """A migration file changed after it was applied."""

    name: str
    line = "migration {name} changed after it was applied; restore it and add a new file"


class DatabaseOutdated(PipelineError):
    """The database was made by migration files that this kvlens does not have."""

    database: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        more = f" and {len(self.names) - 1} more" if len(self.names) > 1 else ""
        return (
            f"database {self.database} has tables of an older kvlens ({self.names[0]}{more}): set "
            f"clickhouse.database to an empty one or DROP DATABASE {self.database}, then `kvlens migrate` "
            "and `kvlens state rebuild`; of `kvlens up` or `kvlens demo`, delete the data directory"
        )


class MigrationRefused(PipelineError):
    """ClickHouse refused a statement of a migration, or a view."""

    what: str
    reason: str
    line = "ClickHouse refused {what}: {reason}"


class CheckpointFailed(PipelineError):
    """A checkpoint transaction did not commit; the state in memory is void."""

    topic: str
    partition: int
    reason: str
    fenced: bool = field(kw_only=True)

    def __str__(self) -> str:
        if self.fenced:
            return (
                f"partition {self.partition} of {self.topic} has another owner now ({self.reason}); "
                "this worker ends; restart it"
            )
        return (
            f"the checkpoint of partition {self.partition} of {self.topic} did not commit ({self.reason}); "
            "this worker ends; a restart continues from the last checkpoint"
        )


class OffsetGap(PipelineError):
    """Records of a topic that never has holes are missing."""

    topic: str
    partition: int
    expected: int
    found: int

    def __str__(self) -> str:
        return (
            f"records {self.expected}..{self.found - 1} of {self.topic}[{self.partition}] did not come; "
            "this worker ends; a restart reads them again"
        )


class RecordFatal(PipelineError):
    """Applying a record failed half-way, in a case that no check foresaw: the state in memory is void."""

    topic: str
    partition: int
    offset: int
    line = (
        "the record at offset {offset} of {topic}[{partition}] cannot be applied, and no "
        "check foresaw it: this worker ends; report it with that record (docs/operations.md)"
    )


class Stalled(PipelineError):
    """Records wait but none is applied."""

    topic: str
    partition: int
    lag: int
    seconds: float
    line = (
        "{topic}[{partition}] has {lag} records waiting, and the worker applied none for "
        "{seconds:.0f} s; it ends; restart it"
    )


class RowsRefused(PipelineError):
    """Rows do not fit their table: no retry can help."""

    table: str
    reason: str
    line = (
        "rows do not fit table {table}: {reason}; "
        "run `kvlens migrate` if the table is older than this version, otherwise report it"
    )


class CheckpointAhead(PipelineError):
    """The checkpoint covers records that the topic no longer has."""

    topic: str
    partition: int
    saved: int
    end: int
    line = (
        "{topic}[{partition}] ends at {end}, but the checkpoint has {saved} of its records: Kafka lost "
        f"records that it had acknowledged, or somebody made the topic again; {COMPUTE_AGAIN}"
    )


class RecordsRemoved(PipelineError):
    """Retention removed records before they were applied."""

    topic: str
    partition: int
    expected: int
    beginning: int

    def __str__(self) -> str:
        return (
            f"records {self.expected}..{self.beginning - 1} of {self.topic}[{self.partition}] were removed "
            "before they were read; this worker ends; a restart goes on behind them, with trust degraded: "
            "raise retention.ms of the topic, or run more workers"
        )


class CheckpointCorrupt(DataError):
    """The checkpoint topic lacks records to which the head of `whose` refers."""

    whose: str
    missing: str
    line = "{missing} of {whose} is missing or of another checkpoint"


class CheckpointFormatUnknown(DataError):
    """Another kvlens wrote the checkpoint."""

    found: int
    """Its format."""
    read: int
    """The format that this kvlens reads."""
    line = "it has format {found}, and this kvlens reads format {read}"


class CheckpointDamaged(DataError):
    """The records of a checkpoint are there, but no state can be made of them."""

    record: str
    why: str
    line = "{record} is damaged ({why})"


class CheckpointUnreadable(PipelineError):
    """A checkpoint lacks records that belong to it, or has a format that this kvlens does not read."""

    topic: str
    partition: int
    reason: str
    line = (
        "the checkpoint in {topic}[{partition}] cannot be read: {reason}; "
        "stop all workers and run `kvlens state rebuild` to compute it again from the log, or start the "
        "kvlens that wrote it"
    )


class GroupInUse(PipelineError):
    """Workers are running that have to be stopped first."""

    group: str
    members: int
    line = (
        "consumer group {group} has {members} members: stop all workers and try again "
        "(one that was killed stays a member for some seconds)"
    )


class TooManySources(PipelineError):
    """More sources than the tables of the fleet agent have numbers for."""

    limit: int
    line = "more than {limit} sources at once; split the fleet over several installations"


@contextmanager
def damaged_if_it_fails(key: bytes) -> Iterator[None]:
    """Turn any error in restoring the record under `key` into CheckpointDamaged.

    A damaged record can fail in many ways, so this catches every exception. Errors that are about checkpoints
    already (CheckpointCorrupt, CheckpointDamaged, CheckpointFormatUnknown) pass through.
    """
    try:
        yield
    except (CheckpointCorrupt, CheckpointDamaged, CheckpointFormatUnknown):
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:_WHY_CHARACTERS]
        raise CheckpointDamaged(shown_key(key), why) from error


def shown_key(key: bytes) -> str:
    """Return the key of a record as a line of text."""
    return f"the record under the key {key[:_KEY_BYTES]!r}"
