"""The windows of one source: when they close, and which of their rows are due."""

from __future__ import annotations

from pipeline.reading import windows
from pipeline.residency.pools import Pools
from pipeline.residency.rows import View, counters_row, rows, source_rows
from pipeline.residency.stream import drift
from schemas.checkpoints import HealthState, SourceHead
from schemas.events import EngineCounters
from schemas.rows import Row

CARRY_LIMIT = 360
"""Windows carried forward per checkpoint and source; the rest follows at the next checkpoint."""


class SourceWindows:
    """Moves a source from window to window, and collects its rows between checkpoints.

    A row's version is the offset of the last record of the source that it rests on, so writing the same
    log again, in other portions, ends in the same rows.
    """

    def __init__(self, head: SourceHead, pools: Pools, *, carry_seconds: float) -> None:
        """Windows of an idle source are carried forward for `carry_seconds`."""
        self._head = head
        self._pools = pools
        self._carry_windows = int(carry_seconds // windows.WINDOW_SECONDS)
        self._due: list[Row] = []
        self._changed = False
        """Whether rows already written may be out of date."""

    def change(self, offset: int) -> None:
        """Note that the record at `offset` changes what rows show."""
        self._changed = True
        self._head.version = offset

    def move_to(self, window: int) -> None:
        """Close the open window and the empty ones before `window`, and open that; never moves back."""
        head = self._head
        if head.window is None:
            head.window = window
        elif window > head.window:
            self._close(head.window, window)
            self._open(window)

    def _open(self, window: int) -> None:
        head = self._head
        self._pools.window_ended(windows.window_end(window - 1))
        head.health = HealthState()
        head.trust.passed = {}
        head.window = window

    def _close(self, window: int, next_window: int) -> None:
        head = self._head
        view = self._view(window)
        self._due += rows(view)
        head.drift.since = drift.since_window(head.drift, window, drift.blocks(head.drift, view.occupancy))
        for empty in range(max(window + 1, next_window - CARRY_LIMIT), next_window):
            self._due += rows(self._view(empty, idle=True))
        self._wrote(next_window - 1)

    def scraped(self, event: EngineCounters, at: float) -> None:
        """Add the row of a scrape of the engine's own counters, at event time `at`."""
        self._due.append(counters_row(self._head, event, at))

    def end_session(self) -> None:
        """End the present session, which a new incarnation replaces: its last row is due."""
        self._pools.settle()
        if self._head.closed_at is None:
            self.ended_unseen("superseded")
        self._due += source_rows(self._head)

    def end_model(self) -> None:
        """End the open window for good: rows of another model have other keys, and begin with its own."""
        head = self._head
        if head.window is not None:
            # Rows carried before must not go on showing an older state.
            self.move_to(max(head.window, head.written_to or 0) + 1)
            head.window = head.carried_to = head.written_to = None
        head.capacity_blocks = head.cpu_capacity_tokens = 0

    def ended_unseen(self, reason: str) -> None:
        """Close the present session, whose end nobody saw, at its last batch (without one, at its start)."""
        head = self._head
        heard = head.connectivity.last_batch_at
        head.closed_at = head.opened_at if heard is None else heard
        head.closed_reason = reason

    def never_reached(self, first: int, last: int) -> None:
        """Add rows of windows `first` to `last` for a source that never sent a batch."""
        for window in range(max(first, last - CARRY_LIMIT), last + 1):
            self._due += rows(View(self._head, window, (), idle=True))

    def take(self, now: float) -> list[Row]:
        """Return the rows to write at wall clock `now`: closed windows, the open one, and carried ones."""
        head = self._head
        taken, self._due = self._due, []
        if self._changed:
            self._changed = False
            if head.window is not None:
                taken += rows(self._view(head.window))
                self._wrote(head.window)
            self._pools.settle()
            taken += source_rows(head)
        elif head.window is not None:
            for window in self._idle_windows(head.window, now):
                taken += rows(self._view(window, idle=True))
                self._wrote(window)
        return taken

    def take_all(self) -> list[Row]:
        """Return all due rows of a session that is closed."""
        taken: list[Row] = []
        while rows_due := self.take(0.0):
            taken += rows_due
        return taken

    def skip_to(self, window: int) -> None:
        """Open a window, and keep the rows of those before it as they were written already."""
        head = self._head
        if head.window is not None and window > head.window:
            self._open(window)

    def were_carried(self, carried_to: int | None, written_to: int | None) -> None:
        """Note up to which windows rows of the source in its present state were carried and written."""
        head = self._head
        head.carried_to = carried_to
        if head.written_to is None or (written_to is not None and written_to > head.written_to):
            head.written_to = written_to

    def let_go(self) -> None:
        """Drop the due rows: nobody writes them."""
        self._due.clear()

    def _idle_windows(self, window: int, now: float) -> range:
        """Return the windows after the open `window` whose rows do not show the present state."""
        head = self._head
        if head.closed_at is None:
            last = min(windows.window_of(now), window + self._carry_windows)
            if head.connectivity.reported_to is not None:
                last = max(last, head.connectivity.reported_to)
        else:
            # Nothing new is carried, but rows carried before must not go on showing an older state.
            last = head.written_to if head.written_to is not None else window
        first = max(window, head.carried_to if head.carried_to is not None else window) + 1
        return range(first, min(last, first + CARRY_LIMIT - 1) + 1)

    def _view(self, window: int, *, idle: bool = False) -> View:
        pools = self._pools
        occupancy = pools.occupancy(windows.window_end(window))
        return View(self._head, window, occupancy, pools.objects.held(), idle)

    def _wrote(self, window: int) -> None:
        written_to = self._head.written_to
        self._head.carried_to = window
        self._head.written_to = window if written_to is None else max(window, written_to)
