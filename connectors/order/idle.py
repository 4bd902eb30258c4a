"""Which idle sources are to be reported, so that the log shows whether each can be reached. No IO."""

from __future__ import annotations

from collections.abc import Iterable

from connectors.sources import SourceKey

IDLE_SECONDS = 10.0
"""A source without a batch for this long is reported, and again at this interval: once a window."""


class IdleReports:
    """Remembers when each source was reported last. Times are seconds by the caller's clock."""

    def __init__(self) -> None:
        self._since: dict[SourceKey, float] = {}

    def due(self, now: float, heard: Iterable[tuple[SourceKey, float]]) -> list[SourceKey]:
        """Return the sources to report now; they count as reported.

        `heard` gives every source and when its last batch came, 0 for never. A source that was not given
        before has IDLE_SECONDS to send one.
        """
        before, self._since = self._since, {}
        due: list[SourceKey] = []
        for source, heard_at in heard:
            since = before.get(source, now)
            # A time ahead is from before the clock was set back: it neither delays a report nor repeats it.
            if since < heard_at <= now:
                since = heard_at
            if not now - IDLE_SECONDS < since <= now:
                due.append(source)
                since = now
            self._since[source] = since
        return due
