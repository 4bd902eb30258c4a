"""What can stop a step of the pipeline: each error carries its data and says what to do in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from connectors.process.addresses import shown
from connectors.process.errors import OperatorError

_WHY_CHARACTERS = 200
_KEY_BYTES = 64
StoreLimit = Literal["time", "memory", "turns", "answer"]
"""What a busy store has too little of; `answer`: it says nothing, so it may as well hang."""
COMPUTE_AGAIN = (
    "stop all workers and run `kvlens state rebuild` to compute everything from what the log holds now"
)


class PipelineError(OperatorError):
    """Something that stops a step of the pipeline."""


class KafkaUnavailable(PipelineError):
    """No broker answered, or it refused what we asked."""

    heals = True

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def __str__(self) -> str:
        # aiokafka names every refusal of an authorizer so.
        refused = "AuthorizationFailed" in self.reason
        advice = (
            "give kafka.sasl_username this right (docs/acls.md)"
            if refused
            else "check kafka.bootstrap_servers and that it runs"
        )
        return f"Kafka at {self.address} cannot be used: {self.reason}; {advice}"


class StoreUnavailable(PipelineError):
    """ClickHouse did not answer, or refused what we asked."""

    def __init__(
        self,
        url: str,
        reason: str,
        *,
        advice: str = "check clickhouse.url and that it runs",
        heals: bool = True,
    ) -> None:
        super().__init__(url, reason)
        self.url = url
        self.reason = reason
        self.advice = advice
        self.heals = heals

    def __str__(self) -> str:
        return f"ClickHouse at {shown(self.url)} cannot be used: {self.reason}; {self.advice}"


class StoreBusy(StoreUnavailable):
    """ClickHouse did not finish this one statement, though it took the connection."""

    def __init__(
        self, url: str, reason: str, *, lacks: StoreLimit, advice: str, seconds: float | None = None
    ) -> None:
        super().__init__(url, reason, advice=advice)
        self.lacks = lacks
        self.seconds = seconds
        """What the statement was allowed, where time was lacking and that is known."""

    def __str__(self) -> str:
        state = "is busy, or hangs" if self.lacks == "answer" else "is busy"
        return f"ClickHouse at {shown(self.url)} {state}: {self.reason}; {self.advice}"


class CertificateUnusable(PipelineError):
    """A file of the settings that ClickHouse is reached with by TLS cannot be used."""

    def __init__(self, setting: str, file: str, reason: str) -> None:
        super().__init__(setting, file, reason)
        self.setting = setting
        self.file = file
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot use {self.file} of clickhouse.{self.setting}: {self.reason}"


class TablesMissing(PipelineError):
    """ClickHouse lacks tables or views of this version."""

    heals = True

    def __init__(self, database: str, names: Sequence[str]) -> None:
        super().__init__(database, names)
        self.database = database
        self.names = names

    def __str__(self) -> str:
        more = f" and {len(self.names) - 1} more" if len(self.names) > 1 else ""
        return f"database {self.database} lacks {self.names[0]} of this kvlens{more}; run `kvlens migrate`"


class GroupRefused(PipelineError):
    """This user may not join a consumer group."""

    heals = True

    def __init__(self, group: str) -> None:
        super().__init__(group)
        self.group = group

    def __str__(self) -> str:
        return (
            f"this user may not join the consumer group {self.group}; "
            "give kafka.sasl_username Read on it (docs/acls.md)"
        )


class TransactionsRefused(PipelineError):
    """This user may not write in transactions with an id."""

    heals = True

    def __init__(self, transactional_id: str) -> None:
        super().__init__(transactional_id)
        self.transactional_id = transactional_id

    def __str__(self) -> str:
        return (
            f"this user lacks Write on the transactional id {self.transactional_id}; "
            "give kafka.sasl_username this right (docs/acls.md)"
        )


class TopicMismatch(PipelineError):
    """A topic exists with a partition count that the state kept for it does not fit."""

    def __init__(self, topic: str, found: int, wanted: int, why: str) -> None:
        super().__init__(topic, found, wanted, why)
        self.topic = topic
        self.found = found
        self.wanted = wanted
        self.why = why

    def __str__(self) -> str:
        return (
            f"topic {self.topic} has {self.found} partitions but {self.wanted} are needed ({self.why}); "
            "state is bound to partition numbers: take the log to another kafka.topic_prefix with "
            "`kvlens topics copy` (docs/maintenance.md, more partitions), or delete the topic and begin again"
        )


class TopicRefused(PipelineError):
    """The broker did not create a topic."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(topic, reason)
        self.topic = topic
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot create topic {self.topic}: {self.reason}"


class MigrationChanged(PipelineError):
    """An applied migration file is not what it was when it was applied."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"migration {self.name} changed after it was applied; restore it and add a new file"


class DatabaseOutdated(PipelineError):
    """A database was made with files of tables that this kvlens does not read."""

    def __init__(self, database: str, names: tuple[str, ...]) -> None:
        super().__init__(database, names)
        self.database = database
        self.names = names

    def __str__(self) -> str:
        more = f" and {len(self.names) - 1} more" if len(self.names) > 1 else ""
        return (
            f"database {self.database} has tables of an older kvlens ({self.names[0]}{more}): set "
            f"clickhouse.database to an empty one or DROP DATABASE {self.database}, then `kvlens migrate` "
            "and `kvlens state rebuild`; of `kvlens up` or `kvlens demo`, delete the data directory"
        )


class MigrationRefused(PipelineError):
    """ClickHouse refused a statement of a migration, or a view."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason)
        self.what = what
        self.reason = reason

    def __str__(self) -> str:
        return f"ClickHouse refused {self.what}: {self.reason}"


class CheckpointFailed(PipelineError):
    """A checkpoint transaction did not commit; the state in memory is void."""

    def __init__(self, topic: str, partition: int, reason: str, *, fenced: bool) -> None:
        super().__init__(topic, partition, reason)
        self.topic = topic
        self.partition = partition
        self.reason = reason
        self.fenced = fenced

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

    def __init__(self, topic: str, partition: int, expected: int, found: int) -> None:
        super().__init__(topic, partition, expected, found)
        self.topic = topic
        self.partition = partition
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return (
            f"records {self.expected}..{self.found - 1} of {self.topic}[{self.partition}] did not come; "
            "this worker ends; a restart reads them again"
        )


class RecordFatal(PipelineError):
    """Applying a record failed half-way, which none of the checks before foresaw: the state is void."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(topic, partition, offset)
        self.topic = topic
        self.partition = partition
        self.offset = offset

    def __str__(self) -> str:
        return (
            f"the record at offset {self.offset} of {self.topic}[{self.partition}] cannot be applied, and no "
            "check foresaw it: this worker ends; report it with that record (docs/operations.md)"
        )


class Stalled(PipelineError):
    """Records wait but none is applied."""

    def __init__(self, topic: str, partition: int, lag: int, seconds: float) -> None:
        super().__init__(topic, partition, lag, seconds)
        self.topic = topic
        self.partition = partition
        self.lag = lag
        self.seconds = seconds

    def __str__(self) -> str:
        return (
            f"{self.topic}[{self.partition}] has {self.lag} records waiting, and the worker applied none for "
            f"{self.seconds:.0f} s; it ends; restart it"
        )


class RowsRefused(PipelineError):
    """Rows do not fit their table: no retry can help."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(table, reason)
        self.table = table
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"rows do not fit table {self.table}: {self.reason}; "
            "run `kvlens migrate` if the table is older than this version, otherwise report it"
        )


class CheckpointAhead(PipelineError):
    """The checkpoint knows records that the topic does not have any more."""

    def __init__(self, topic: str, partition: int, saved: int, end: int) -> None:
        super().__init__(topic, partition, saved, end)
        self.topic = topic
        self.partition = partition
        self.saved = saved
        self.end = end

    def __str__(self) -> str:
        return (
            f"{self.topic}[{self.partition}] ends at {self.end}, but the checkpoint has {self.saved} of its "
            "records: Kafka lost records that it had acknowledged, or somebody made the topic again; "
            f"{COMPUTE_AGAIN}"
        )


class RecordsRemoved(PipelineError):
    """Retention removed records before they were applied."""

    def __init__(self, topic: str, partition: int, expected: int, beginning: int) -> None:
        super().__init__(topic, partition, expected, beginning)
        self.topic = topic
        self.partition = partition
        self.expected = expected
        self.beginning = beginning

    def __str__(self) -> str:
        return (
            f"records {self.expected}..{self.beginning - 1} of {self.topic}[{self.partition}] were removed "
            "before they were read; this worker ends; a restart goes on behind them, with trust degraded: "
            "raise retention.ms of the topic, or run more workers"
        )


class CheckpointCorrupt(Exception):
    """The checkpoint topic does not hold the records that the head of `whose` refers to."""

    def __init__(self, whose: str, missing: str) -> None:
        super().__init__(whose, missing)
        self.whose = whose
        self.missing = missing

    def __str__(self) -> str:
        return f"{self.missing} of {self.whose} is missing or of another checkpoint"


class CheckpointFormatUnknown(Exception):
    """Another kvlens wrote the checkpoint."""

    def __init__(self, found: int, read: int) -> None:
        """`found` is its format; this kvlens reads `read`."""
        super().__init__(found, read)
        self.found = found
        self.read = read

    def __str__(self) -> str:
        return f"it has format {self.found}, and this kvlens reads format {self.read}"


class CheckpointDamaged(Exception):
    """The records of a checkpoint are there, but no state can be made of them."""

    def __init__(self, record: str, why: str) -> None:
        super().__init__(record, why)
        self.record = record
        self.why = why

    def __str__(self) -> str:
        return f"{self.record} is damaged ({self.why})"


@contextmanager
def damaged_if_it_fails(key: bytes) -> Iterator[None]:
    """Translate what fails while the record of a key is restored.

    A damaged record can fail in every way in which columns, numbers and names can fail to fit. Raises
    CheckpointDamaged, and CheckpointCorrupt where that was the failure.
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


class CheckpointUnreadable(PipelineError):
    """A checkpoint lacks records that belong to it, or has a format that this kvlens does not read."""

    def __init__(self, topic: str, partition: int, reason: str) -> None:
        super().__init__(topic, partition, reason)
        self.topic = topic
        self.partition = partition
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the checkpoint in {self.topic}[{self.partition}] cannot be read: {self.reason}; "
            "stop all workers and run `kvlens state rebuild` to compute it again from the log, or start the "
            "kvlens that wrote it"
        )


class GroupInUse(PipelineError):
    """Workers run that must not."""

    def __init__(self, group: str, members: int) -> None:
        super().__init__(group, members)
        self.group = group
        self.members = members

    def __str__(self) -> str:
        return (
            f"consumer group {self.group} has {self.members} members: stop all workers and try again "
            "(one that was killed stays a member for some seconds)"
        )


class TooManySources(PipelineError):
    """More sources than the tables of the fleet agent have numbers for."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit

    def __str__(self) -> str:
        return f"more than {self.limit} sources at once; split the fleet over several installations"
