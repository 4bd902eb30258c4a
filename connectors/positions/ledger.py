"""Where each source is in the events topic: what a record says of it, and what has to be written. No IO."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from connectors.order.records import Mention
from connectors.sources import SourceKey
from schemas.positions import PositionRecord

MOST_EMITTERS = 1000
"""Publishers of one source whose progress is kept, at most: they are in each of its positions."""

Reached = tuple[int, int]
"""Session of a publisher, and a sequence number in it."""


def advance(position: PositionRecord, mention: Mention) -> None:
    """Move a position by the next record of its source in the log.

    A record that is there twice, or of a past incarnation, moves nothing.
    """
    if mention.incarnation < position.incarnation:
        return
    if mention.incarnation > position.incarnation:
        position.incarnation, position.closed = mention.incarnation, False
        position.seq, position.fingerprint, position.life = None, 0, ""
        position.emitters = {}
    if mention.seq is not None and (position.seq is None or mention.seq > position.seq):
        position.seq, position.fingerprint = mention.seq, mention.fingerprint
    position.closed = position.closed or mention.closed
    if mention.emitters:
        # A new one, as copies of a position share it.
        position.emitters = latest(position.emitters, mention.emitters)


def progress(position: PositionRecord) -> tuple[int, int]:
    """Return what orders the positions of one source: its incarnation, and its sequence number or -1."""
    return position.incarnation, -1 if position.seq is None else position.seq


def latest(before: Mapping[str, Reached], now: Mapping[str, Reached]) -> dict[str, Reached]:
    """Return how far each publisher is, the last to report at the end; of too many the first are dropped.

    Servers may make up a new id at each start.
    """
    found = {emitter: reached for emitter, reached in before.items() if emitter not in now}
    found |= {emitter: max(before.get(emitter, reached), reached) for emitter, reached in now.items()}
    return dict([*found.items()][-MOST_EMITTERS:]) if len(found) > MOST_EMITTERS else found


class Ledger:
    """The positions of the sources of one connector as Kafka has acknowledged them."""

    def __init__(self, connector: str) -> None:
        """`connector` is the name that the positions are signed with."""
        self.connector = connector
        self._positions: dict[SourceKey, PositionRecord] = {}
        self._session_names: dict[SourceKey, str] = {}
        self._accounted: dict[int, int] = {}
        self._changed: set[SourceKey] = set()
        self._leaving: set[SourceKey] = set()

    def __contains__(self, source: SourceKey) -> bool:
        return source in self._positions

    @property
    def partitions(self) -> set[int]:
        """Partitions of the events topic that hold a source."""
        return {position.partition for position in self._positions.values()}

    def begin(
        self, positions: Iterable[PositionRecord], session_names: Mapping[SourceKey, str] | None = None
    ) -> None:
        """Take over sources at these positions; each is due to be written.

        `session_names` has those of the engines' present sessions. An open incarnation without such a name is
        assumed to be of the present one.
        """
        for position in positions:
            source = position.source
            self._positions[source] = position
            self._session_names[source] = (session_names or {}).get(source, "")
            if position.incarnation and not position.closed:
                position.life = position.life or self._session_names[source]
            self._leaving.discard(source)
            self._changed.add(source)

    def forget(self, source: SourceKey) -> None:
        """Drop a source once a position is written that says its incarnation, if it has one, is closed."""
        if source in self._positions:
            self._leaving.add(source)
            self._changed.add(source)

    def drop(self, sources: Iterable[SourceKey]) -> None:
        """Drop sources that are not read after all: they may be gone before that is tried again."""
        for source in sources:
            del self._positions[source], self._session_names[source]
            self._leaving.discard(source)

    def ending(self, sources: Iterable[SourceKey]) -> bool:
        """Return whether one of these was forgotten, and the end of its incarnation is not in the log yet."""
        leaving = (self._positions[source] for source in sources if source in self._leaving)
        return any(position.incarnation and not position.closed for position in leaving)

    def acknowledged(self, partition: int, offset: int, mentions: Sequence[Mention]) -> None:
        """Note that records are in the log, the last one at `offset`; a negative offset is unknown.

        To be called in the order of offsets of each partition.
        """
        for mention in mentions:
            position = self._positions.get(mention.source)
            if position is not None:
                anew = mention.incarnation > position.incarnation
                advance(position, mention)
                if anew:
                    position.life = self._session_names[mention.source]
                self._changed.add(mention.source)
        self.account(partition, offset)

    def account(self, partition: int, offset: int) -> None:
        """Note that all our records up to `offset` have been reported."""
        if offset > self._accounted.get(partition, -1):
            self._accounted[partition] = offset

    def overtaken(self, by: PositionRecord) -> bool:
        """Compare with what another connector published of a source; return whether its incarnation is later.

        If so, the source continues there: readers leave out what is of an earlier one.
        """
        source = by.source
        position = self._positions.get(source)
        if position is None or by.incarnation <= position.incarnation:
            return False
        by.place, by.topic_id = position.place, position.topic_id
        if not by.closed:
            by.life = by.life or self._session_names[source]
        self._positions[source] = by
        self._changed.add(source)
        return True

    def take(self, *, everything: bool = False) -> list[PositionRecord]:
        """Return copies of the positions to write: those that changed since the last call, or all."""
        sources = self._positions.keys() if everything else self._changed & self._positions.keys()
        taken = []
        for source in sources:
            position = self._positions[source]
            position.offset = max(position.offset, self._accounted.get(position.partition, -1))
            position.connector = self.connector
            taken.append(msgspec.structs.replace(position))
        self._changed = set()
        return taken

    def written(self, positions: Iterable[PositionRecord]) -> None:
        """Note that these are in the positions topic."""
        for position in positions:
            source = position.source
            if source in self._leaving and (position.closed or not position.incarnation):
                self._leaving.discard(source)
                del self._positions[source], self._session_names[source]

    def unwritten(self, positions: Iterable[PositionRecord]) -> None:
        """Note that these could not be written; they are due again."""
        self._changed.update(position.source for position in positions)
