"""What an agent reads, keeps and writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic, TypeVar

from connectors.kafka.topics import topic_name
from pipeline.applying.reader import Reader
from pipeline.applying.state import Cut, State
from pipeline.errors import (
    CheckpointCorrupt,
    CheckpointDamaged,
    CheckpointFormatUnknown,
    CheckpointUnreadable,
)
from pipeline.worker.checkpoint.record import Record
from schemas.settings import Kafka

_Record = TypeVar("_Record")
_Cut = TypeVar("_Cut", bound=Cut)


class Role(ABC, Generic[_Record, _Cut]):
    """An agent's part in a worker, beside its state."""

    name: ClassVar[str]
    """Also ends its consumer group's name."""
    committed: ClassVar[bool]
    """It reads committed records only."""
    unsaved_bytes: ClassVar[int]
    """Of values, that wait for a round at most: one is made early then. What a state holds for it, and what
    cutting that takes, is several times as much, and the kernel takes longer to give new memory than a record
    takes to be applied."""
    chunk_bytes: ClassVar[int]
    """Of keys and values, that are applied in one go. What it costs to begin with a source or a record is
    shared by more changes where more is applied; meanwhile the event loop stands still."""

    def __init__(self, kafka: Kafka, reader: Reader[_Record]) -> None:
        self.reader = reader
        self.topic = reader.topic
        self.checkpoints = topic_name(kafka, f"checkpoints_{self.name}")
        """Topic of its checkpoints, as many partitions as it reads."""
        self.set_aside = topic_name(kafka, "set_aside")
        """Topic for records that cannot be applied."""

    @property
    def saved_topics(self) -> frozenset[str]:
        """Topics that a state is of: the one read, and those that were told what follows from it."""
        return frozenset({self.topic})

    @abstractmethod
    def restore(self, partition: int, latest: Mapping[bytes, bytes]) -> State[_Record, _Cut]:
        """Return the state that the last value of each checkpoint key makes; a new one if there is none."""

    @abstractmethod
    def outputs(self, cut: _Cut) -> Sequence[Record]:
        """Return the records, besides checkpoints, that a cut commits."""

    def restored(self, partition: int, latest: Mapping[bytes, bytes]) -> State[_Record, _Cut]:
        """Return the state that the checkpoint of a partition holds. Raises CheckpointUnreadable."""
        try:
            return self.restore(partition, latest)
        except (CheckpointCorrupt, CheckpointDamaged, CheckpointFormatUnknown) as error:
            raise CheckpointUnreadable(self.checkpoints, partition, str(error)) from error
