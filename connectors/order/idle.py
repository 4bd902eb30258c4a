"""Which sources are idle and have to be reported, so that the log shows idle or unreachable. No IO."""

from __future__ import annotations

from collections.abc import Iterable

from connectors.sources import SourceKey

IDLE_SECONDS = 10.0
"""A source without a batch for this long is reported, and again at this interval: once a window."""


class IdleReports:
    """Remembers when each source was reported last. Times are seconds of one clock, the caller's."""

    def __init__(self) -> None:
        self._since: dict[SourceKey, float] = {}

    def due(self, now: float, heard: Iterable[tuple[SourceKey, float]]) -> list[SourceKey]:
        """Return the sources to report now; they count as reported.

        `heard` gives every source there is and when its last batch came, 0 for never: a source that is new
        here has IDLE_SECONDS to be heard.
        """
        before, self._since = self._since, {}
        due: list[SourceKey] = []
        for source, heard_at in heard:
            since = max(before.get(source, now), heard_at)
            # A clock that was set back makes nobody wait longer.
            if not now - IDLE_SECONDS < since <= now:
                due.append(source)
                since = now
            self._since[source] = since
        return due
