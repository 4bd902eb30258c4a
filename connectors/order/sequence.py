"""Decide what a sequence number means for a source: new, ahead, duplicate or restart."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from zlib import crc32

from schemas.positions import PositionRecord

RECENT_BATCHES = 256
"""How far back a repeated batch is recognised; older numbers can only be those of a new session."""
MAX_REPLAYED = 1 << 20
"""Replayed batches that are recognised when they also come live; engines buffer 10,000 by default."""
_FINGERPRINT_BYTES = 64


def fingerprint_of(payload: bytes) -> int:
    """Return a 32-bit fingerprint of a batch, equal in every process.

    It covers the length and the first 64 bytes: those hold the time of publication, which distinguishes
    batches of the same number from two sessions.
    """
    return crc32(payload[:_FINGERPRINT_BYTES], len(payload))


class Decision(Enum):
    """What a batch is, by its number and fingerprint."""

    NEW = auto()
    """The batch that was due, or one that had been passed over."""
    AHEAD = auto()
    """New, but the batches from the one due up to this one are missing."""
    DUPLICATE = auto()
    """A batch that was taken before."""
    RESTART = auto()
    """The first batch that we see of a new session of the engine."""


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """How far the log is with a source, as known to a connector that starts."""

    incarnation: int
    """Last incarnation published."""
    seq: int | None = None
    """Last sequence number published of it; None when there is none."""
    fingerprint: int = 0
    """Fingerprint of that batch."""
    closed: bool = False
    """Whether the session has ended: the next batch begins another."""

    @classmethod
    def of(cls, record: PositionRecord) -> StoredPosition:
        return cls(record.incarnation, record.seq, record.fingerprint, record.closed)


class SequencePosition:
    """The last batch taken of one session and the fingerprints of those that may come again."""

    __slots__ = ("_recent", "_replayed", "_replayed_first", "due", "fingerprint", "last")

    def __init__(self, seq: int, fingerprint: int) -> None:
        self.last = seq
        """Sequence number of the last batch taken."""
        self.fingerprint = fingerprint
        """Its fingerprint."""
        self.due = seq + 1
        """The next number expected: `last + 1`, or a later one where those between were passed over."""
        self._recent: list[tuple[int, int] | None] = [None] * RECENT_BATCHES
        self._recent[seq % RECENT_BATCHES] = (seq, fingerprint)
        self._replayed_first = 0
        self._replayed = array("I")

    def advance(self, seq: int, fingerprint: int) -> None:
        """Take batch `seq`, which must be greater than `last`."""
        self.last = seq
        self.fingerprint = fingerprint
        if seq >= self.due:
            self.due = seq + 1
        self._recent[seq % RECENT_BATCHES] = (seq, fingerprint)

    def advance_all(self, seqs: Sequence[int], fingerprints: Sequence[int]) -> None:
        """Take consecutive batches, the first of which is due."""
        for seq, fingerprint in zip(seqs[-RECENT_BATCHES:], fingerprints[-RECENT_BATCHES:], strict=True):
            self._recent[seq % RECENT_BATCHES] = (seq, fingerprint)
        self.last, self.fingerprint = seq, fingerprint
        self.due = seq + 1

    def advance_by_replay(self, seq: int, fingerprint: int) -> None:
        """Take a replayed batch; it may also come live, out of a queue of many thousand messages."""
        if self.last + 1 != self._replayed_first + len(self._replayed) or (
            seq - self._replayed_first >= MAX_REPLAYED
        ):
            self._replayed_first = seq
            self._replayed = array("I")
        missing = seq - self._replayed_first - len(self._replayed)
        self._replayed.extend(array("I", bytes(missing * self._replayed.itemsize)))
        self._replayed.append(fingerprint)
        self.advance(seq, fingerprint)

    def pass_over(self, seq: int) -> None:
        """Skip batch `seq`, which came but could not be understood.

        It is not a gap if the stream goes on after it, and new if it comes again and can be understood.
        """
        if seq == self.due:
            self.due += 1

    def taken(self, seq: int, fingerprint: int) -> bool:
        """Tell whether this very batch is among the recent or the replayed ones."""
        if self._recent[seq % RECENT_BATCHES] == (seq, fingerprint):
            return True
        index = seq - self._replayed_first
        return 0 <= index < len(self._replayed) and self._replayed[index] == fingerprint

    def contradicts(self, seq: int, fingerprint: int) -> bool:
        """Tell whether a different batch is remembered under this number."""
        recent = self._recent[seq % RECENT_BATCHES]
        return recent is not None and recent[0] == seq and recent[1] != fingerprint

    def forget_replayed(self) -> None:
        """Forget the replayed batches once the live stream is past them: they will not come live any more."""
        if self._replayed and self.last >= self._replayed_first + len(self._replayed):
            self._replayed = array("I")


def decide(position: SequencePosition, seq: int, fingerprint: int) -> Decision:
    """Return what batch `seq` with this fingerprint is to a source at `position`, which is not changed.

    Total: every number gets a decision. A number that is not ahead is a duplicate only if that very batch
    was taken recently; otherwise the engine has started to count again from 0.
    """
    if seq > position.due:
        return Decision.AHEAD
    if seq > position.last:
        return Decision.NEW
    return Decision.DUPLICATE if position.taken(seq, fingerprint) else Decision.RESTART
