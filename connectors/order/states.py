"""The states of a source's recovery, and what becomes of a message that waits. No IO.

`Standing`, by the one before and what happens:

    began here, or the engine cannot be asked    SURE
    position stored by another process           UNCONFIRMED
    UNCONFIRMED, the engine still has that batch SURE
    any, the engine no longer has that batch     DOUBTED
    UNCONFIRMED, the engine does not answer      DOUBTED
    DOUBTED, a batch taken                       SURE
    any, an answer shows another session         REPLAYED
    REPLAYED, a late message dropped             SURE
    any, the session ends                        SURE
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto


class Standing(Enum):
    """What is known of the session in the log."""

    UNCONFIRMED = auto()
    """Another process wrote it, and the engine may be in another one by now."""
    DOUBTED = auto()
    """The engine may be in another one, and cannot show which; a notice of that precedes the next batch."""
    REPLAYED = auto()
    """It began with an answer: live messages of the session before may still come out of a queue."""
    SURE = auto()
    """It is the engine's present one, as far as we have seen."""


class Need(IntEnum):
    """What to ask the engine for, in ascending order."""

    NOTHING = 0
    TAIL = 1
    """The end of a quiet stream, though nothing is known to be missing."""
    MISSING = 2
    """What is or may be missing: everything from the last batch taken on."""
    ALL = 3
    """All it has, after an empty answer: this shows whether it keeps batches at all."""


class Verdict(Enum):
    """What becomes of the message that has waited longest."""

    TAKE = auto()
    WAIT = auto()
    """For an answer, or for the end of one."""
    REPEATED = auto()
    """It was taken before."""
    TOO_LATE = auto()
    """It came after it had been given up as lost."""
    PAST = auto()
    """It belongs to a session that has already ended."""
    LATE = auto()
    """The same, by the engine's clock alone; an ask shows if that is wrong."""
    BEGINS = auto()
    """It belongs to the next session: the one in the log is over."""
