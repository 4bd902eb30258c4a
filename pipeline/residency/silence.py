"""Which sources of a partition have been silent for so long that they are forgotten.

A partition has a clock of its own, which follows from its log alone. From one record of a source to the next
it advances by the time between their receipts, STEP_SECONDS at most, counted from where it was at the first
of them. If receipts of a source go back in time, its latest one stays the reference, so that differences of
connectors' clocks do not add up. So no wrong clock moves it far, and it halts while nothing is published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import borrowed, compiled
from pipeline.reading.numbered import Numbered, Readable
from pipeline.reading.plain_runs import PlainRun
from schemas.events import EventsRecord

STEP_SECONDS: Final = 60.0
"""Sources that are read are heard every ten seconds."""

SourceKey = tuple[str, int]


@dataclass
class SilenceState:
    """When the last record of a source came."""

    clock: float = 0.0
    """The time of the partition's clock then."""
    received_at: float = 0.0
    """Latest receipt of the last batch of its records, seconds since the epoch; 0 while that is not known."""


class Silence:
    """Notes when each source was heard, by the clock of the partition."""

    def __init__(
        self,
        forget_seconds: float,
        clock: float = 0.0,
        heard: Mapping[SourceKey, SilenceState] = MappingProxyType({}),
    ) -> None:
        """`clock` and `heard` are those of a checkpoint: the time of the clock, and the sources there are."""
        self.clock = clock
        self._forget_seconds = forget_seconds
        self._heard = dict(sorted(heard.items(), key=lambda one: one[1].clock))
        """In the order of the last record of each."""

    def heard(self, key: SourceKey, received: float) -> list[SourceKey]:
        """Advance the clock by a record of a source; return the sources to forget before it is applied.

        `received`: when the last batch of the record was received, 0 if it has none.
        """
        state = self._heard.pop(key, None)
        if state is None:
            state = SilenceState()
        elif state.received_at and received:
            step = min(max(received - state.received_at, 0.0), STEP_SECONDS)
            self.clock = max(self.clock, state.clock + step)
        state.clock = self.clock
        state.received_at = max(state.received_at, received)
        self._heard[key] = state
        return self._silent()

    def all_heard(
        self, keys: Sequence[SourceKey], sources: npt.NDArray[np.int64], received: npt.NDArray[np.float64]
    ) -> bool:
        """Do what `heard` does for n records and return True, or nothing and False if one may be forgotten.

        `sources` (n,): the index of each record's key, `received` (n,): when its last batch was received.
        """
        states = [self._heard.get(key) or SilenceState() for key in keys]
        clocks = np.array([state.clock for state in states])
        latest = np.array([state.received_at for state in states])
        clock = _follow(self.clock, clocks, latest, sources, received)
        # Sources heard now are heard at the present time of the clock at the earliest.
        longest_silent = next((state.clock for state in self._heard.values()), self.clock)
        if clock - longest_silent >= self._forget_seconds:
            return False
        self.clock = clock
        last: dict[int, None] = dict.fromkeys(sources[::-1].tolist())
        for source in reversed(last):
            state, key = states[source], keys[source]
            state.clock, state.received_at = float(clocks[source]), float(latest[source])
            self._heard.pop(key, None)
            self._heard[key] = state
        return True

    def state_of(self, key: SourceKey) -> SilenceState:
        """Return what is known of a source that was heard."""
        return self._heard[key]

    def _silent(self) -> list[SourceKey]:
        found = []
        for key, state in self._heard.items():
            if self.clock - state.clock < self._forget_seconds:
                break
            found.append(key)
        for key in found:
            del self._heard[key]
        return found


def in_order(
    keys: Sequence[SourceKey], records: Sequence[Numbered]
) -> tuple[list[SourceKey], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the sources of records and, in log order, each record's index in them and when it came."""
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    counts, offsets, received = [], [], []
    for offset, record in records:
        if isinstance(record, PlainRun):
            counts.append(len(record.records))
            offsets.append(record.offsets)
            received.append(record.rows["received_at"])
        else:
            counts.append(1)
            offsets.append(np.array([offset]))
            received.append(np.array([received_at(record)]))
    order = np.argsort(np.concatenate(offsets), kind="stable")
    sources = np.repeat(np.array([numbers[key] for key in keys], np.int64), counts)
    return [*numbers], sources[order], np.concatenate(received)[order]


def received_at(record: Readable) -> float:
    """Return when the last batch was received, 0 if there is none."""
    if isinstance(record, EventsRecord):
        return record.batches[-1].received_at if record.batches else 0.0
    return record.received_at


@compiled
def _follow(
    clock: float,
    clocks: npt.NDArray[np.float64],
    latest: npt.NDArray[np.float64],
    sources: npt.NDArray[np.int64],
    received: npt.NDArray[np.float64],
) -> float:
    """Advance the clock by records, and update what is known of their sources; return the clock."""
    clocks, latest, sources, received = (
        borrowed(clocks),
        borrowed(latest),
        borrowed(sources),
        borrowed(received),
    )
    for at in range(len(sources)):
        source, moment = sources[at], received[at]
        if latest[source] != 0.0 and moment != 0.0:
            step = min(max(moment - latest[source], 0.0), STEP_SECONDS)
            clock = max(clock, clocks[source] + step)
        clocks[source] = clock
        latest[source] = max(latest[source], moment)
    return clock
