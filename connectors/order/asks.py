"""A replay request: what is asked for, what is known of it while it is on its way, how it ends. No IO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from connectors.frames.bundle import MAX_SEQUENCE

MAX_DISORDERED = 1_000
"""Batches out of order after which an answer is not read any further."""

Outcome = Literal[
    "end",  # the engine said that this was all
    "timeout",  # nothing more came for too long
    "unreachable",  # nobody listens at the endpoint
    "enough",  # the rest of the answer was of no use
    "endless",  # it brought more than any engine keeps; the rest is asked for anew
]
LeftOut = Literal[
    "backlog",  # live, and no room to wait, or of no use there; it is asked for
    "past_life",  # live, and of a session that was over before
    "too_late",  # live, out of a slow queue, when it had been given up
    "paused",  # live, of an engine that connects to us and sends faster than its share is dealt with
    "disordered",  # answered out of order, repeated, or with an impossible number
]


@dataclass(frozen=True, slots=True)
class Ask:
    """A replay request."""

    first: int
    """Sequence number that the answer should begin with."""
    urgent: bool
    """Whether something is known to be missing, and the engine to answer, or live messages wait for it."""


@dataclass(slots=True)
class RequestInFlight:
    """An ask on its way."""

    first: int
    fingerprint: int | None
    """Fingerprint of batch `first`; None when nothing is known of this session."""
    due: int
    """The number that was due when it was sent."""
    missed: bool
    """Whether something behind `due` was known then."""
    arrivals: int
    """Live messages that had come before."""
    newest: int
    probe: bool = False
    """It asks what else the engine has, after an empty answer."""
    confirmed: bool = False
    """The answer began with the very batch `first`."""
    batches: int = 0
    disordered: int = 0
    hole: bool = False
    """It was given up at a hole, to be asked for again."""
    void: bool = False
    """Another session of the engine began."""

    def takes(self, seq: int) -> bool:
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
