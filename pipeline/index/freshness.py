"""How far the index is behind the log, partition by partition, or which moment of the past it shows."""

from __future__ import annotations

import math
from collections.abc import Callable

from pipeline.index.answers import IndexState
from pipeline.index.questions.refused import QuestionRefused

STALE_SECONDS = 5.0
"""An index that last knew the whole log longer ago than this is not ready, and its answers say so."""


class Freshness:
    """When each partition was last known to be read to its end, by a monotonic clock."""

    def __init__(self, stale_seconds: float, *, at: float | None = None) -> None:
        self.at = at
        """The past moment shown, in seconds since the epoch; its age stays 0. None: the present."""
        self._stale_seconds = stale_seconds
        self._current_at: dict[int, float] = {}
        self._lag: dict[int, int] = {}
        self.waiting_for: Callable[[], str | None] = lambda: None
        """Returns why nothing can be read yet, None if it can."""
        self.ready = False
        """Whether every partition has been read to its end at least once."""

    def follow(self, partitions: list[int]) -> None:
        """Begin with these partitions, about none of which anything is known yet."""
        self._current_at = dict.fromkeys(partitions, -math.inf)
        self._lag = dict.fromkeys(partitions, 0)

    def looked(self, partition: int, *, next_offset: int, end: int, at: float) -> None:
        """Note that at `at` a partition ended before `end`, and that all before `next_offset` is applied."""
        self._lag[partition] = max(0, end - next_offset)
        if next_offset >= end:
            self._current_at[partition] = max(self._current_at[partition], at)
            self.ready = self.ready or min(self._current_at.values()) > -math.inf

    def reached_moment(self) -> None:
        """Note that the log was read up to the past moment."""
        self.ready = True

    def age(self, now: float) -> float:
        """Return the seconds since the whole log was last known; infinite before the first time."""
        if self.at is not None and self.ready:
            return 0.0
        return max(0.0, now - min(self._current_at.values(), default=-math.inf))

    @property
    def lag(self) -> int:
        """Return how many records are known to exist and not applied yet."""
        return sum(self._lag.values())

    def state(self, now: float) -> IndexState:
        """Return the state that answers carry, once the index is ready."""
        age = self.age(now)
        return IndexState(round(age, 3), age > self._stale_seconds, self.lag, self.at)

    def require_ready(self, now: float) -> None:
        """Raise QuestionRefused until the whole log, or that up to the past moment, was read once."""
        if not self.ready:
            raise QuestionRefused("not_ready", self.unready(now) or "")

    def unready(self, now: float) -> str | None:
        """Return why the index is not ready, None if it is."""
        if not self.ready and self.at is not None:
            return "reading the log from its beginning up to the moment"
        if not self.ready and (cause := self.waiting_for()):
            return cause
        if not self.ready:
            missing = sum(at == -math.inf for at in self._current_at.values())
            return f"catching up: {self.lag:,} records to read in {missing} partitions"
        age = self.age(now)
        if age > self._stale_seconds:
            return f"stale: {age:.1f} s behind the log, {self.lag:,} records to read"
        return None
