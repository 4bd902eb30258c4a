"""Which sources are quiet and have to be reported, so that the log tells idle from unreachable. No IO."""

from __future__ import annotations

from collections.abc import Iterable

from connectors.source import SourceKey

QUIET_SECONDS = 10.0
"""A source of which no batch came for so long is reported, and again after so long: once a window."""


class QuietReports:
    """Remembers when each source was reported last. Times are seconds of one clock, the caller's."""

    def __init__(self) -> None:
        self._since: dict[SourceKey, float] = {}

    def due(self, now: float, heard: Iterable[tuple[SourceKey, float]]) -> list[SourceKey]:
        """Return the sources to report now; they count as reported.

        `heard` gives every source there is and when its last batch came, 0 for never: a source that is new
        here has QUIET_SECONDS to be heard.
        """
        before, self._since = self._since, {}
        due: list[SourceKey] = []
        for source, heard_at in heard:
            since = max(before.get(source, now), heard_at)
            # A clock that was set back makes nobody wait longer.
            if not now - QUIET_SECONDS < since <= now:
                due.append(source)
                since = now
            self._since[source] = since
        return due
