"""The states that a source's recovery is in, and what becomes of a message that waits. No IO.

What is known of the session in the log:

    began here, or nothing can be asked          SURE
    position of another process                  UNCONFIRMED
    UNCONFIRMED, the engine still has that batch SURE
    any, the engine no longer has that batch     DOUBTED
    UNCONFIRMED, the engine does not answer      DOUBTED
    DOUBTED, a batch taken                       SURE
    any, an answer shows another session         REPLAYED
    REPLAYED, a late message let go              SURE
    any, the session ends                        SURE
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto


class Standing(Enum):
    """What is known of the session in the log."""

    UNCONFIRMED = auto()
    """Another process's, and the engine may be in another one."""
    DOUBTED = auto()
    """The engine may be in another one, and nobody will say; the next batch has a notice of it before it."""
    REPLAYED = auto()
    """An answer began it: live messages of the one before may still come, out of a queue."""
    SURE = auto()
    """The engine's present one, as far as it was heard."""


class Need(IntEnum):
    """What to ask the engine for, the least first."""

    NOTHING = 0
    TAIL = 1
    """The end of a quiet stream, though nothing is known to be missing."""
    MISSING = 2
    """What is missing, or may be: from the last batch taken on."""
    ALL = 3
    """Whatever it has, since it answered with nothing: whether it keeps batches at all."""


class Verdict(Enum):
    """What becomes of the message that has waited longest."""

    TAKE = auto()
    WAIT = auto()
    """For an answer, or for the end of one."""
    REPEATED = auto()
    """It was taken before."""
    TOO_LATE = auto()
    """It was given up before it came."""
    PAST = auto()
    """It is of a session that was over before."""
    LATE = auto()
    """The same by the engine's clock; an ask shows if that is wrong."""
    BEGINS = auto()
    """It is of the next session: the one in the log is over."""
