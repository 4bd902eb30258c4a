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
    """What is specific to one agent of a worker, apart from its state."""

    name: ClassVar[str]
    """Also the end of its consumer group's name."""
    committed: ClassVar[bool]
    """Whether it reads only committed records."""
    unsaved_bytes: ClassVar[int]
    """Bytes of values that may wait for a round: beyond them one is made early. The state and its cut take
    several times as much memory, which the kernel gives more slowly than records are applied."""
    chunk_bytes: ClassVar[int]
    """Bytes of keys and values that are applied in one go. The more there are, the more changes share the
    fixed cost of a source or record, but meanwhile the event loop stands still."""

    def __init__(self, kafka: Kafka, reader: Reader[_Record]) -> None:
        self.reader = reader
        self.topic = reader.topic
        self.checkpoints = topic_name(kafka, f"checkpoints_{self.name}")
        """Topic of its checkpoints, as many partitions as it reads."""
        self.set_aside = topic_name(kafka, "set_aside")
        """Topic for records that cannot be applied."""

    @property
    def saved_topics(self) -> frozenset[str]:
        """Topics that a state belongs to: the one it reads, and those to which it wrote what follows."""
        return frozenset({self.topic})

    @abstractmethod
    def restore(self, partition: int, latest: Mapping[bytes, bytes]) -> State[_Record, _Cut]:
        """Return the state that the last value of each checkpoint key makes; a new one if there is none."""

    @abstractmethod
    def outputs(self, cut: _Cut) -> Sequence[Record]:
        """Return the records, apart from checkpoints, that a cut commits."""

    def restored(self, partition: int, latest: Mapping[bytes, bytes]) -> State[_Record, _Cut]:
        """Return the state that the checkpoint of a partition holds. Raises CheckpointUnreadable."""
        try:
            return self.restore(partition, latest)
        except (CheckpointCorrupt, CheckpointDamaged, CheckpointFormatUnknown) as error:
            raise CheckpointUnreadable(self.checkpoints, partition, str(error)) from error
