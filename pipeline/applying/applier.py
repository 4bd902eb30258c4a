"""Offers the records of one partition to its state, in offset order, exactly once each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Generic, TypeVar

from pipeline.applying.offered import Offered
from pipeline.applying.reader import Reader
from pipeline.applying.state import State
from pipeline.errors import OffsetGap, RecordFatal
from pipeline.kafka.acceptance import NOT_APPLICABLE
from pipeline.kafka.refusal import RecordRefused

_Record = TypeVar("_Record")


@dataclass(frozen=True)
class _Judged(Generic[_Record]):
    """Records that came together, read and judged but not yet applied."""

    accepted: list[tuple[int, _Record]]
    """In order of their first offsets."""
    refused: dict[int, RecordRefused]
    """By place."""
    alone: set[int]
    """Places of the refused, and of those across which other records may not be read as one."""


class Applier(Generic[_Record]):
    """Applies records that came together, or sets them aside for a reason that is counted."""

    def __init__(
        self,
        reader: Reader[_Record],
        state: State[_Record, Any],
        partition: int,
        *,
        set_aside: Callable[[Offered, RecordRefused], None],
        repeated: Callable[[int], None] = lambda records: None,
    ) -> None:
        """`set_aside` gets the records that the state does not; `repeated` counts those that came again."""
        self.applied = 0
        """Records applied since the caller set this to 0."""
        self._reader = reader
        self._state = state
        self._partition = partition
        self._set_aside = set_aside
        self._repeated = repeated

    def offer(self, several: Sequence[Offered]) -> Sequence[Offered]:
        """Bring records of the log into the state; return those of them that it did not have before.

        Raises OffsetGap, RecordFatal.
        """
        due = self._due(several)
        if due:
            self._offer(due)
        return due

    def _due(self, several: Sequence[Offered]) -> Sequence[Offered]:
        next_offset = self._state.next_offset
        again = sum(offered.offset < next_offset for offered in several)
        if again:
            self._repeated(again)
            several = several[again:]
        if self._reader.contiguous:
            for offset, offered in enumerate(several, next_offset):
                if offered.offset != offset:
                    raise OffsetGap(self._reader.topic, self._partition, offset, offered.offset)
        return several

    def _offer(self, several: Sequence[Offered]) -> None:
        judged = self._judged(several)
        if not judged.alone:
            self._apply(judged.accepted, count=len(several))
            return
        # What comes before such a record and after it must not be read as one.
        decoded = dict(judged.accepted)
        begin = 0
        for at in sorted(judged.alone):
            if begin < at:
                self._offer(several[begin:at])
            offered = several[at]
            if at in judged.refused:
                self._set_aside(offered, judged.refused[at])
                self._state.set_aside(offered.offset, judged.refused[at])
            else:
                self._apply([(offered.offset, decoded[offered.offset])], count=1)
            begin = at + 1
        if begin < len(several):
            self._offer(several[begin:])

    def _judged(self, several: Sequence[Offered]) -> _Judged[_Record]:
        reader, begin = self._reader, several[0].offset
        ahead = reader.ahead(several)
        accepted: list[tuple[int, _Record]] = []
        refused: dict[int, RecordRefused] = {}
        for first, record in ahead.records:
            if (refusal := self._refusal(record)) is None:
                accepted.append((first, record))
            else:
                # Several are read as one only where offsets have no holes.
                refused |= {offset - begin: refusal for offset in reader.offsets_of(first, record)}
        for at in ahead.others:
            try:
                record = reader.decode(several[at])
            except RecordRefused as error:
                refused[at] = error
                continue
            if (refusal := self._refusal(record)) is None:
                accepted.append((several[at].offset, reader.bounded(record, several[at].written_at)))
            else:
                refused[at] = refusal
        accepted.sort(key=itemgetter(0))
        return _Judged(accepted, refused, {*refused, *ahead.unknown})

    def _refusal(self, record: _Record) -> RecordRefused | None:
        """Return why the state must not get a record, which does not depend on what it holds."""
        reason = self._state.refusal(record)
        return reason and RecordRefused(reason, NOT_APPLICABLE, self._reader.sources_of(record))

    def _apply(self, accepted: Sequence[tuple[int, _Record]], *, count: int) -> None:
        """Apply records; `count` says how many they were before some were read as one."""
        if not accepted:
            return
        try:
            self._state.apply_all(accepted)
        except Exception as error:
            raise RecordFatal(self._reader.topic, self._partition, self._state.applying) from error
        self.applied += count
