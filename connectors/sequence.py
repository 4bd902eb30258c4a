"""Decide what a sequence number means for a source: new, duplicate, gap or restart."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

RECENT_BATCHES = 256
"""How far back a repeated batch is recognised; older numbers can only be those of a new life."""
MAX_SEQUENCE = 1 << 48
"""Engines count batches from 0 and get nowhere near: random bytes must not move a position."""
_FINGERPRINT_BYTES = 64


def fingerprint(payload: bytes) -> int:
    """Return a 32-bit mark of a batch, equal in every process.

    It covers the length and the first 64 bytes: those hold the time of publication, which tells batches
    of two lives with one number apart.
    """
    return crc32(payload[:_FINGERPRINT_BYTES], len(payload))


@dataclass(frozen=True, slots=True)
class New:
    """The batch that was due, or one that had been passed over."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A batch that was taken before."""


@dataclass(frozen=True, slots=True)
class Gap:
    """New, but `first`..`last` (inclusive) are missing before it."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Restart:
    """The first batch that we see of a new life of the engine."""


Decision = New | Duplicate | Gap | Restart

NEW = New()
DUPLICATE = Duplicate()
RESTART = Restart()


class SequencePosition:
    """The last batch taken of one incarnation and the fingerprints of the recent ones."""

    __slots__ = ("_recent", "due", "last")

    def __init__(self, seq: int, mark: int) -> None:
        self.last = seq
        """Sequence number of the last batch taken."""
        self.due = seq + 1
        """The number to come: `last + 1`, or further where the numbers between were passed over."""
        self._recent: list[tuple[int, int] | None] = [None] * RECENT_BATCHES
        self._recent[seq % RECENT_BATCHES] = (seq, mark)

    def advance(self, seq: int, mark: int) -> None:
        """Take batch `seq`, which must be greater than `last`; `mark` is its fingerprint."""
        self.last = seq
        self.due = seq + 1
        self._recent[seq % RECENT_BATCHES] = (seq, mark)

    def pass_over(self, seq: int) -> None:
        """Take note that nobody could understand what came as batch `seq`.

        It is no gap if the stream goes on behind it, and new if it comes again and can be understood.
        """
        if seq == self.due:
            self.due += 1

    def taken(self, seq: int, mark: int) -> bool:
        """Tell whether this very batch is among the recent ones."""
        return self._recent[seq % RECENT_BATCHES] == (seq, mark)

    @property
    def recent(self) -> list[tuple[int, int]]:
        """(sequence number, fingerprint) of the recent batches of this incarnation, oldest first."""
        return sorted(entry for entry in self._recent if entry is not None)


def decide(position: SequencePosition, seq: int, mark: int) -> Decision:
    """Return what batch `seq` with fingerprint `mark` is to a source at `position`, which is left as it is.

    Total: every number gets a decision. A number that is not ahead is a duplicate only if that very batch
    was taken recently; otherwise the engine has started to count anew.
    """
    if seq > position.due:
        return Gap(position.due, seq - 1)
    if seq > position.last:
        return NEW
    return DUPLICATE if position.taken(seq, mark) else RESTART
