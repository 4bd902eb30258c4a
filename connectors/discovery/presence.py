"""Which sources of an origin count, while its answers are in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from connectors.process.absence import Absence
from connectors.sources import Source


class AbsenceTelemetry(Protocol):
    """Where answers that are not believed are reported."""

    def absence_doubted(self, origin: str, known: int, found: int) -> None: ...


class Presence:
    """The sources of one origin, by its answers: see `Absence` for when missing ones are gone."""

    def __init__(self, origin: str, telemetry: AbsenceTelemetry) -> None:
        self._absence = Absence(lambda known, found: telemetry.absence_doubted(origin, known, found))
        self._counted: list[Source] = []
        self._said: list[Source] = []

    def begin(self, sources: Sequence[Source]) -> list[Source]:
        """Begin with sources that count from the start."""
        self._counted, self._said = [*sources], [*sources]
        return [*sources]

    def answered(self, sources: Sequence[Source], now: float) -> list[Source]:
        """Apply a proper answer; return the sources that count now.

        `now` is in seconds of a monotonic clock.
        """
        self._said = [*sources]
        found = {source.replica for source in sources}
        endpoints = {source.endpoint for source in sources}
        missing = [
            source
            for source in self._counted
            if source.replica not in found and source.endpoint not in endpoints
        ]
        known = {source.replica for source in self._counted}
        gone = {source.replica for source in missing}
        if self._absence.believed(len(known), len(known - gone), now):
            self._counted, missing = [*sources], []
        return [*sources, *missing]

    def again(self, now: float) -> list[Source] | None:
        """Judge the last answer again; return the sources that count if it is believed by now."""
        if not self._absence.pending:
            return None
        sources = self.answered(self._said, now)
        return None if self._absence.pending else sources

    def unanswered(self) -> None:
        """Note that there was no proper answer."""
        self._absence.unanswered()
