"""The state that an agent, or the index, keeps of one partition of a topic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from pipeline.applying.steps import Steps
from pipeline.kafka.refusal import RecordRefused, SourceName
from schemas.reasons import GaveUpRepeats, LimitReason, OrderReason, SetAsideReason, WithoutContent
from schemas.rows import Row


class Cut(Protocol):
    """One consistent checkpoint of a state, as far as all agents have the same."""

    @property
    def next_offset(self) -> int: ...
    @property
    def dirty(self) -> bool: ...
    @property
    def rows(self) -> list[Row]: ...
    @property
    def checkpoints(self) -> Sequence[tuple[bytes, bytes | None]]: ...


_Record = TypeVar("_Record")
_Cut = TypeVar("_Cut", bound=Cut)


class State(ABC, Generic[_Record, _Cut]):
    """A state of one partition: pure, in memory. It gets records in offset order, each once."""

    next_offset: int
    """Of the first record that is not in the state yet."""
    applying: int
    """Offset of the record that `apply_all` is at; of several that it applies as one, the first."""

    @property
    @abstractmethod
    def source_count(self) -> int:
        """How many sources it knows."""

    @abstractmethod
    def refusal(self, record: _Record) -> SetAsideReason | None:
        """Return why a record must be set aside, whatever was applied before it; changes nothing."""

    @abstractmethod
    def apply_all(self, records: Sequence[tuple[int, _Record]]) -> None:
        """Apply records that `refusal` accepts, in order of their first offsets."""

    @abstractmethod
    def set_aside(self, offset: int, refused: RecordRefused) -> None:
        """Leave out the record at `offset`: the sources it names, if known, lack what it said."""

    @abstractmethod
    def skip_removed(self, beginning: int) -> None:
        """Continue at `beginning`: the records before it that were not applied are gone."""

    @abstractmethod
    def cutting(self, now: float, heard_to: float) -> Steps[_Cut]:
        """Cut at wall clock `now`, in steps between which nothing may be applied.

        What is silent is known to be unchanged up to `heard_to`.
        """

    @abstractmethod
    def take_forgotten(self) -> int:
        """Return how many sources were forgotten since the last call."""

    def errand(self, now: float) -> Callable[[], None] | None:
        """Return work that would delay a cut at `now`, to be done in a thread before; None if there is none.

        Nothing may be applied or cut meanwhile.
        """
        return None

    # What only some states need.

    def note_committed(self, offset: int) -> None:
        """Learn, without a checkpoint, that a former owner committed everything before `offset`."""
        return

    @property
    def required_end(self) -> int:
        """Return how far the log must reach: this state, or its checkpoint, rests on all records before."""
        return self.next_offset

    def leaves(self) -> None:
        """Learn, before the last cut, that another worker continues from it."""
        return

    def read_to(self, time: float) -> None:
        """Learn, before a cut, up to which log time the partition is read."""
        return

    def troubles(self) -> Mapping[str, int]:
        """Return how many sources have each kind of trouble."""
        return {}

    def take_left_out(self) -> Iterable[tuple[SourceName, Mapping[LimitReason, int]]]:
        """Return for each source how many events limits kept out, by reason, since the last call."""
        return ()

    def take_without_content(self) -> Mapping[WithoutContent, int]:
        """Return how many blocks got no content hash, by reason, since the last call."""
        return {}

    def take_gave_up_repeats(self) -> Mapping[GaveUpRepeats, int]:
        """Return how many pools forgot what was announced again, by reason, since the last call."""
        return {}

    def take_out_of_order(self) -> Mapping[OrderReason, int]:
        """Return how many changes did not count in event order, by reason, since the last call."""
        return {}
