"""Live messages of one source that wait until what is missing before them was replayed. No IO."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from connectors.order.sequence import SequencePosition

MESSAGE_OVERHEAD_BYTES = 300
"""What a waiting message takes besides its payload."""
SHARE = 4
"""One source takes at most one part in so many of the budget."""


@dataclass(slots=True)
class Message:
    """A batch as it came, its frame checked."""

    seq: int
    fingerprint: int
    """Fingerprint of the payload."""
    payload: bytes
    received_at: float
    understood: bool = False
    """Whether it was seen to be a batch."""


@dataclass(slots=True)
class BacklogBudget:
    """Bytes that the backlogs of all sources may take together."""

    bound: int
    used: int = 0


@dataclass(slots=True)
class _Entry:
    message: Message
    arrival: int
    size: int


class Backlog:
    """A bounded queue in the order of arrival. Messages are numbered from 0, over the whole time."""

    def __init__(self, budget: BacklogBudget) -> None:
        self._budget = budget
        self._entries: deque[_Entry] = deque()
        self._bytes = 0
        self.arrivals = 0
        """Messages that were ever added."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def first(self) -> Message:
        """The message that came first."""
        return self._entries[0].message

    @property
    def first_arrival(self) -> int:
        """Its number."""
        return self._entries[0].arrival

    def add(self, message: Message) -> bool:
        """Append a message; False if there is no room."""
        size = len(message.payload) + MESSAGE_OVERHEAD_BYTES
        budget = self._budget
        full = self._bytes + size > budget.bound // SHARE or budget.used + size > budget.bound
        # A single one always fits: it is what shows that something is missing.
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
        """Return how many messages came before the last restart that the first `arrivals` show, if they do.

        A number that is not ahead shows one, unless the batch is one that was there before, or it is late.
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
