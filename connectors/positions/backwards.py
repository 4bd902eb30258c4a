"""Positions from the log alone, which is read backwards, part by part. No IO."""

from __future__ import annotations

from connectors.order.records import Mention
from connectors.positions.ledger import advance
from connectors.sources import SourceKey
from schemas.positions import PositionRecord


class Backwards:
    """The positions in one partition of the events topic, of which the newest part is read first.

    Once all parts are read, positions are the same as if it had been read from the beginning. Before that,
    those of sources in the newer parts already are, as a source's newest record is of its last session:
    except where the session's last sequence number is in an older part.
    """

    def __init__(self, partition: int, end: int) -> None:
        """`end`: offset before which everything is read."""
        self.positions: dict[SourceKey, PositionRecord] = {}
        self._partition = partition
        self._end = end
        self._part: dict[SourceKey, PositionRecord] = {}

    def add(self, mention: Mention) -> None:
        """Add what the next record of the present part says."""
        position = self._part.get(mention.source)
        if position is None:
            position = self._part[mention.source] = PositionRecord(
                *mention.source, partition=self._partition, offset=self._end - 1
            )
        advance(position, mention)

    def part_read(self) -> None:
        """End the present part; the next one precedes it in the log."""
        for source, position in self._part.items():
            later = self.positions.get(source)
            if later is not None:
                said = Mention(
                    source, later.incarnation, later.seq, later.fingerprint, later.closed, later.emitters
                )
                advance(position, said)
            self.positions[source] = position
        self._part = {}

    def given_up(self) -> None:
        """Close sessions of which no sequence number was found, as no older part will be read.

        Continued, such a session would take in those of a next one, which nothing distinguishes from its own.
        """
        for position in self.positions.values():
            position.closed = position.closed or position.seq is None
