"""What was committed before a state began, and what of it some of its sources still lack. No IO."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from pipeline.reading.numbered import Numbered, Readable, between
from pipeline.residency.checkpoint.position import begins, included
from pipeline.residency.silence import Silence, SilenceState, SourceKey
from pipeline.residency.source import SourceResidency
from schemas.checkpoints import PartitionMeta

Sources = Mapping[SourceKey, SourceResidency]


class AlreadyCommitted:
    """Records before `end`, which were committed by another state.

    A state that continues from its checkpoint, `meta`, applies to each source what its base lacks of them.
    """

    def __init__(self, end: int = 0, meta: PartitionMeta | None = None) -> None:
        self.end = end
        self.meta = meta
        """None if checkpoints are lost, or once everything committed with them is applied."""
        self.begins = 0 if meta is None else begins(meta)
        """Offset of the first record that some source lacks."""
        self._included = {} if meta is None else included(meta)
        self._behind: set[SourceKey] = set()
        """Sources that lack records which the log no longer has."""

    def included(self, key: SourceKey) -> int:
        """Return the offset before which the source's records are in it already, or must not come into it."""
        return self._included.get(key, 0)

    def again(self, numbered: Numbered, key: SourceKey) -> Numbered | None:
        """Return the part of `numbered` that was committed but that the source lacks, if any."""
        return between(numbered, self.included(key), self.end)

    def later(self, records: Sequence[Numbered]) -> list[tuple[int, Readable]]:
        """Return the records, or parts of runs, that were not committed."""
        behind = (between(numbered, self.end, math.inf) for numbered in records)
        return [numbered for numbered in behind if numbered is not None]

    def removed(self, keys: Iterable[SourceKey], beginning: int) -> tuple[set[SourceKey], int]:
        """Note that the log lost records before an offset.

        Returns the sources whose bases lack some of them, and where to go on: at the first that is left of
        those that were committed, or behind them.
        """
        reached = min(beginning, self.end)
        found = {key for key in keys if self.included(key) < reached}
        self._included |= dict.fromkeys(found, reached)
        self._behind |= found
        return found, reached

    def rows_stay(self, key: SourceKey) -> bool:
        """Whether rows of records that were committed are not written again, as those of now would lack
        something."""
        return key in self._behind

    def applied(self, sources: Sources, forget_seconds: float) -> Silence | None:
        """Bring sources to where the checkpoint was, after all that was committed is applied to them.

        Returns when each was heard; None if there was no checkpoint.
        """
        meta = self.meta
        if meta is None:
            return None
        heard: dict[SourceKey, SilenceState] = {}
        for one in meta.sources:
            key = one.replica, one.dp_rank
            known = sources.get(key)
            if known is not None:
                heard[key] = SilenceState(one.clock, one.received_at)
                if key in self._behind:
                    known.windows.let_go()
                    if one.carried_to is not None:
                        known.windows.skip_to(one.carried_to)
                    known.windows.change(self.end - 1)
                known.windows.were_carried(one.carried_to, one.written_to)
        for key in sources.keys() - heard.keys():
            heard[key] = SilenceState(meta.clock)
        return Silence(forget_seconds, meta.clock, heard)
