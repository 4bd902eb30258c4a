"""Live messages of one source that wait for a replay of the batches missing before them. No IO."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from connectors.order.sequence import SequencePosition

MESSAGE_OVERHEAD_BYTES = 300
"""Memory of a waiting message beyond its payload."""
SHARE = 4
"""One source may use at most 1/SHARE of the budget."""


@dataclass(slots=True)
class Message:
    """A message as it came, with its frames checked."""

    seq: int
    fingerprint: int
    """Fingerprint of the payload."""
    payload: bytes
    received_at: float
    understood: bool = False
    """Whether the payload is known to be a batch."""


@dataclass(slots=True)
class BacklogBudget:
    """Bytes that the backlogs of all sources may hold together."""

    bound: int
    used: int = 0


@dataclass(slots=True)
class _Entry:
    message: Message
    arrival: int
    size: int


class Backlog:
    """A bounded queue in the order of arrival. Arrivals are numbered from 0 and never start over."""

    def __init__(self, budget: BacklogBudget) -> None:
        self._budget = budget
        self._entries: deque[_Entry] = deque()
        self._bytes = 0
        self.arrivals = 0
        """Messages added so far, those removed included."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def first(self) -> Message:
        """The message that came first."""
        return self._entries[0].message

    @property
    def first_arrival(self) -> int:
        """The arrival number of that message."""
        return self._entries[0].arrival

    def add(self, message: Message) -> bool:
        """Append a message; False if there is no room."""
        size = len(message.payload) + MESSAGE_OVERHEAD_BYTES
        budget = self._budget
        full = self._bytes + size > budget.bound // SHARE or budget.used + size > budget.bound
        # A single message always fits: it shows that something is missing.
        if full and self._entries:
            return False
        self._entries.append(_Entry(message, self.arrivals, size))
        self.arrivals += 1
        self._bytes += size
        budget.used += size
        return True

    def pop(self) -> Message:
        """Remove and return the message that came first."""
        entry = self._entries.popleft()
        self._bytes -= entry.size
        self._budget.used -= entry.size
        return entry.message

    def restart(
        self,
        position: SequencePosition | None,
        arrivals: int,
        is_late: Callable[[Message], bool] = lambda _: False,
    ) -> int | None:
        """Return how many messages precede the last restart that the first `arrivals` show, None without one.

        A number that is not ahead shows a restart, unless that very batch came before, or it is late.
        """
        before = None
        newest = -1 if position is None else position.last
        seen = set()
        for index, entry in enumerate(self._entries):
            if entry.arrival >= arrivals:
                break
            seq, fingerprint = entry.message.seq, entry.message.fingerprint
            repeated = (seq, fingerprint) in seen
            repeated = repeated or (position is not None and position.taken(seq, fingerprint))
            if seq <= newest and not repeated and not is_late(entry.message):
                before, newest = index, seq
            seen.add((seq, fingerprint))
            newest = max(newest, seq)
        return before
