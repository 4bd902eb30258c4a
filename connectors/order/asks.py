"""A replay request: what it asks for, its state while in flight, and how it ends. No IO."""

from __future__ import annotations

from dataclasses import dataclass

from connectors.frames.bundle import MAX_SEQUENCE

MAX_DISORDERED = 1_000
"""After more batches out of order than this, an answer is not read any further."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A replay request."""

    first: int
    """Sequence number that the answer should begin with."""
    urgent: bool
    """Whether live messages wait for it, or more than the tail is wanted and the last ask was answered."""


@dataclass(slots=True)
class RequestInFlight:
    """A request that was sent, and what is known of its answer."""

    first: int
    fingerprint: int | None
    """Fingerprint of batch `first`; None when nothing is known of this session."""
    due: int
    """The number that was due when it was sent."""
    missed: bool
    """Whether batch `due` was known to be missing then."""
    arrivals: int
    """Live messages that had come by then."""
    newest: int
    """Last number answered; `first - 1` before any was."""
    probe: bool = False
    """It asks what else the engine has, after an empty answer."""
    confirmed: bool = False
    """The answer began with the very batch `first`."""
    batches: int = 0
    disordered: int = 0
    hole: bool = False
    """The answer was cut off at a hole, to be asked for again: engines may drop what they cannot send. If the
    next answer has it as well (`missed`), it is final, and so is one after many in a row."""
    void: bool = False
    """The rest of the answer is ignored: another session of the engine began, or may have."""

    def accepts(self, seq: int) -> bool:
        """Tell whether a batch of this number may be next in the answer, and count it."""
        if not self.newest < seq < MAX_SEQUENCE:
            self.disordered += 1
            return False
        self.newest = seq
        self.batches += 1
        return True

    @property
    def over(self) -> bool:
        return self.hole or self.void or self.disordered > MAX_DISORDERED
