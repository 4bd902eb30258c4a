"""How the records of one topic are read: what agents, index and questions about the past have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from pipeline.applying.offered import Offered
from pipeline.kafka.refusal import SourceName

_Record = TypeVar("_Record")


@dataclass(frozen=True)
class Ahead(Generic[_Record]):
    """What was read of several records at once; a place is a record's index among them."""

    records: Sequence[tuple[int, _Record]]
    """First offsets, and what was read: of a record, or of several that are read as one."""
    others: Sequence[int]
    """Places of the records that must be decoded, in order."""
    unknown: Collection[int] = ()
    """Places of those across which other records may not be read as one, as nobody knows their source."""


class Reader(ABC, Generic[_Record]):
    """Reads the records of a topic into what states of this topic apply."""

    topic: str
    contiguous: ClassVar[bool]
    """Whether offsets have no holes, as the topic's producers are not transactional."""

    def ahead(self, offered: Sequence[Offered]) -> Ahead[_Record]:
        """Read several records at once, and leave some to `decode`: all of them, if nothing is faster."""
        return Ahead((), range(len(offered)))

    @abstractmethod
    def decode(self, offered: Offered) -> _Record:
        """Return the record. Raises RecordRefused."""

    @abstractmethod
    def sources_of(self, record: _Record) -> tuple[SourceName, ...]:
        """Return the sources that a record names."""

    def bounded(self, record: _Record, written_at: float) -> _Record:
        """Return a decoded record with times that the log's time of it allows."""
        return record

    def offsets_of(self, offset: int, record: _Record) -> Sequence[int]:
        """Return the offsets of all that was read as one, of which `offset` is the first."""
        return (offset,)
