"""Where the sources of a connector continue after a restart: read at the start, written while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from connectors.kafka.consumer import STOP_SECONDS
from connectors.kafka.errors import KAFKA_FAILURES, TopicMadeAgain, failure_reason
from connectors.kafka.topics import partition_of, partition_of_key, topic_name
from connectors.order.records import Mention
from connectors.order.sequence import StoredPosition
from connectors.positions.ledger import Ledger
from connectors.positions.reader import (
    Found,
    PositionReader,
    PositionsUnreadable,
    ReaderTelemetry,
    Stored,
    Topic,
)
from connectors.process.stopping import ended
from connectors.sources import Source, SourceKey, SourcesNotAdded
from schemas.positions import PositionRecord, position_key
from schemas.settings import Kafka

WRITE_SECONDS = 1.0
"""Positions that moved are written this often."""
REFRESH_EVERY = 10
"""After so many rounds all positions are written, so that none points far back, not even an idle source's."""
OWNERS_EVERY = 6
"""After so many refreshes, look for other connectors that wrote positions of our sources meanwhile."""
QUIET_LOOKS = 10
"""A connector that wrote no position for so many looks, ten minutes, counts as ended. If it was only frozen,
it may still publish something in a later incarnation, and end before it writes where that is."""
END_SECONDS = 5.0
"""How long a source that comes back waits for the acknowledgement of its end; then it is tried again."""
END_LOOK_SECONDS = 0.01
WRITE_TIMEOUT_SECONDS = 30.0
FOLLOWS = (
    "this connector ends; the next start begins new sessions, with all that engines still have; "
    "workers and indexes say what to do about theirs"
)
"""Where the events topic was made again."""


class PositionsUnwritable(SourcesNotAdded):
    """Kafka does not accept the positions from which a successor would start."""

    heals = True
    topic: str
    reason: str
    line = "cannot write positions to topic {topic} ({reason}); the connector needs Write on it"


class PositionsTelemetry(ReaderTelemetry, Protocol):
    """Where the positions report what happens."""

    def positions_loaded(self, sources: int, known: int) -> None: ...
    def positions_recovered(self, sources: int) -> None: ...
    def positions_not_written(self, reason: str) -> None: ...
    def source_contested(self, replica: str, dp_rank: int, connector: str) -> None: ...


Overtaken = Callable[[SourceKey, StoredPosition], None]
"""Called when another connector has published a later incarnation of a source, with its position there."""


class Log(Protocol):
    """What writes to Kafka, as far as it is needed here."""

    topic: str

    @property
    def partitions(self) -> int: ...
    def is_idle(self, partition: int) -> bool: ...
    async def partitions_of(self, topic: str) -> int: ...
    async def write(self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]) -> None: ...


class _Other(NamedTuple):
    """How far another connector was in the log with a source of ours."""

    stored: Stored
    looks: int
    """How many looks since then have found no position of it."""

    @classmethod
    def at(cls, position: PositionRecord, ends: Mapping[int, int], looks: int) -> _Other:
        """Return it for the next look: behind all that was read, as if it were alive until then."""
        position = msgspec.structs.replace(position, offset=ends[position.partition] - 1)
        until = time.time() + WRITE_SECONDS * REFRESH_EVERY * OWNERS_EVERY
        return cls(Stored(position, until), looks)


class Positions:
    """The positions of one connector's sources.

    `resume` returns start positions that are exact: the stored ones, advanced by what the events topic holds
    behind them. While the connector runs, what Kafka acknowledges is written about once a second.

    Another connector may read our sources for a while: one that shards were taken from, or one that was
    frozen and goes on. Where its incarnation is later, ours continue there (`Overtaken`).
    """

    def __init__(
        self, settings: Kafka, log: Log, telemetry: PositionsTelemetry, overtaken: Overtaken
    ) -> None:
        self._tell_overtaken = overtaken
        self.topic = topic_name(settings, "positions")
        self._kafka = settings
        self._log = log
        self._telemetry = telemetry
        self._ledger = Ledger(secrets.token_hex(4))
        self._partitions = 0
        self._topic_id = ""
        """Of the events topic."""
        self._looked_to: dict[int, int] = {}
        """Offsets of the positions topic up to which the positions of others have been seen."""
        self._beginning: set[SourceKey] = set()
        """Our sources whose first position has not been seen there yet: `resume` read what precedes it."""
        self._others: dict[SourceKey, _Other] = {}
        """Other connectors that wrote positions of our sources, and have not been quiet for too long."""
        self._reader: PositionReader | None = None
        self._reading = asyncio.Lock()
        self._writing = asyncio.Lock()
        self.task: asyncio.Task[None] | None = None
        """Runs from the start to the stop."""

    async def start(self) -> None:
        """Connect; the log must be connected already.

        Raises TopicMissing, TopicHidden, RightMissing, PositionsUnreadable, CertificateUnreadable.
        """
        self._partitions = await self._log.partitions_of(self.topic)
        reader = PositionReader(
            self._kafka,
            events=Topic(self._log.topic, self._log.partitions),
            positions=Topic(self.topic, self._partitions),
            telemetry=self._telemetry,
        )
        await reader.start()
        try:
            self._topic_id = await reader.topic_id()
            _, self._looked_to = await reader.written_since({})
        except BaseException:
            await reader.stop()
            raise
        self._reader = reader
        self.task = asyncio.create_task(self._keep(reader), name="positions")

    async def resume(self, sources: Iterable[Source]) -> dict[SourceKey, PositionRecord]:
        """Return the positions of these sources, and keep them from now on.

        `incarnation` is 0 for a source that is not known. Raises PositionsUnreadable, PositionsUnwritable;
        the call may be repeated.
        """
        wanted = list(sources)
        if self._reader is None:
            raise RuntimeError("resume before the start")
        await self._ended(source.key for source in wanted)
        # What was acknowledged before, of sources that come back, has to be among the stored positions.
        await self._write(self._ledger.take())
        async with self._reading:
            stored = await self._reader.stored()
            ends = await self._reader.ends()
            if wanted and not stored:
                stored = await self._recover(self._reader, ends)
            found = {source.key: stored[source.key] for source in wanted if source.key in stored}
            usable = [item for item in found.values() if self._usable(item.position, ends)]
            await self._reader.follow(usable, ends)
        positions = {}
        for source in wanted:
            partition = partition_of(source.replica, self._log.partitions)
            position = PositionRecord(*source.key, partition=partition, offset=-1)
            if source.key in found:
                position = found[source.key].position
                position.partition = partition
            position.offset = ends[partition] - 1
            position.topic_id = self._topic_id
            position.place = source.place
            positions[source.key] = position
            # The connector that wrote it has ended, or is frozen.
            if position.connector not in ("", self._ledger.connector):
                self._others[source.key] = _Other.at(position, ends, 0)
        self._ledger.begin(
            (msgspec.structs.replace(position) for position in positions.values()),
            {source.key: source.session_name for source in wanted},
        )
        self._beginning.update(positions)
        # From here on a successor finds whatever is published of these sources.
        try:
            await self._send_surely(self._ledger.take())
        except PositionsUnwritable:
            self._ledger.drop(positions)
            self._beginning.difference_update(positions)
            raise
        self._telemetry.positions_loaded(len(wanted), len(usable))
        return positions

    async def places(self) -> list[tuple[str, str, str]]:
        """Return the places of sources that LMCache's servers report and whose session is not closed.

        Raises PositionsUnreadable; the call may be repeated.
        """
        if self._reader is None:
            raise RuntimeError("asked before the start")
        async with self._reading:
            stored = await self._reader.stored()
        positions = [found.position for found in stored.values()]
        # One that never began has no end to wait for.
        return [one.place for one in positions if one.place and one.incarnation and not one.closed]

    async def _ended(self, sources: Iterable[SourceKey]) -> None:
        """Wait until the ends of sources that come back are in the log. Raises PositionsUnwritable."""
        coming = list(sources)
        deadline = time.monotonic() + END_SECONDS
        while self._ledger.ending(coming):
            if time.monotonic() > deadline:
                raise PositionsUnwritable(self.topic, "the ends of sources that come back are not in the log")
            await asyncio.sleep(END_LOOK_SECONDS)

    def acknowledged(self, partition: int, offset: int, mentions: Sequence[Mention]) -> None:
        """Note that records are in the events topic: see `connectors.publish.publisher.Acknowledged`."""
        self._ledger.acknowledged(partition, offset, mentions)

    def forget(self, source: SourceKey) -> None:
        """Keep the position of a removed source no longer than until its end is written."""
        self._ledger.forget(source)

    async def write(self, seconds: float) -> None:
        """Write the positions that have moved, for the last time and within `seconds`."""
        await ended(self.task)
        if self.task is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._write(self._ledger.take()), seconds)

    async def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Disconnect, within `seconds`; what moved since `write` is read again by a successor."""
        await ended(self.task)
        if self._reader is not None:
            await self._reader.stop(seconds)

    async def _keep(self, reader: PositionReader) -> None:
        """Write positions, for ever. Raises TopicMadeAgain when they are of an events topic that is gone."""
        round_number = 0
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            round_number += 1
            if round_number % REFRESH_EVERY:
                await self._write(self._ledger.take())
                continue
            try:
                async with self._reading:
                    self._require_same(await reader.topic_id())
                    await self._account(reader)
                    if round_number // REFRESH_EVERY % OWNERS_EVERY == 0:
                        await self._look_for_others(reader)
            except PositionsUnreadable as error:
                self._telemetry.positions_not_written(str(error))
            await self._write(self._ledger.take(everything=True))

    def _require_same(self, topic_id: str) -> None:
        if topic_id and self._topic_id and topic_id != self._topic_id:
            raise TopicMadeAgain(self._log.topic, self._topic_id, topic_id, FOLLOWS)

    async def _account(self, reader: PositionReader) -> None:
        """Move the offsets of idle partitions to their ends: what is there now is not ours.

        Others may write to a partition while our sources in it are idle, and a successor should not have
        to read all that.
        """
        idle = {partition for partition in self._ledger.partitions if self._log.is_idle(partition)}
        if idle:
            ends = await reader.ends()
            for partition in idle:
                # Whatever was added and acknowledged meanwhile has been reported.
                if self._log.is_idle(partition):
                    self._ledger.account(partition, ends[partition] - 1)

    async def _recover(self, reader: PositionReader, ends: Mapping[int, int]) -> dict[SourceKey, Stored]:
        """Write the positions of all sources in the log, because the positions topic has none at all.

        It was lost, or nothing was ever published. The first connector to start does so for the others, too.
        """
        positions = await reader.by_the_log(ends)
        for position in positions:
            position.topic_id = self._topic_id
        if positions:
            await self._send_surely(positions)
            self._telemetry.positions_recovered(len(positions))
        return {each.source: Stored(each, time.time()) for each in positions}

    async def _look_for_others(self, reader: PositionReader) -> None:
        """Report our sources whose positions another connector writes as well, and continue with its
        incarnation where that is later. Raises PositionsUnreadable.

        What it published since its last position counts, too, as it may have been killed.
        """
        written, looked_to = await reader.written_since(self._looked_to)
        found: dict[SourceKey, Found] = {}
        beside: set[SourceKey] = set()
        for stored in written:
            position = stored.position
            source = position.source
            if position.connector == self._ledger.connector:
                self._beginning.discard(source)
            # Without a name it was recovered from the log, by a connector that need not read the source.
            elif position.connector and source in self._ledger:
                # Those before our first position, too: compaction may have removed the record of ours.
                found.setdefault(source, Found()).add(stored)
                if source not in self._beginning:
                    beside.add(source)
        others = {source: each.furthest for source, each in found.items()}
        now = {source: stored for source, stored in others.items() if stored is not None}
        for source in beside:
            self._telemetry.source_contested(*source, now[source].position.connector)
        ends = await reader.ends()
        # A connector that wrote no position since the last look may still have published something.
        heard = {source: other for source, other in self._others.items() if other.looks < QUIET_LOOKS}
        heard |= {source: _Other(stored, 0) for source, stored in now.items()}
        seen = {
            source: other
            for source, other in heard.items()
            if source in self._ledger and self._is_of(other.stored.position, ends)
        }
        await reader.follow([other.stored for other in seen.values()], ends)
        self._looked_to = looked_to
        self._others = {
            source: _Other.at(other.stored.position, ends, other.looks + 1) for source, other in seen.items()
        }
        for other in seen.values():
            self._compare(msgspec.structs.replace(other.stored.position), ends)

    def _compare(self, other: PositionRecord, ends: Mapping[int, int]) -> None:
        """Continue where another connector is in the log, if that is in a later incarnation."""
        other.offset = ends[other.partition] - 1
        if self._ledger.overtaken(other):
            self._tell_overtaken(other.source, StoredPosition.of(other))

    def _usable(self, position: PositionRecord, ends: dict[int, int]) -> bool:
        """Return whether a position fits the log as it is: a topic that was made again has other offsets.

        If not, the position is closed, so that a new incarnation follows.
        """
        if self._is_of(position, ends):
            return True
        position.closed = True
        reason = "ahead_of_log" if self._is_of_topic(position) else "topic_made_again"
        self._telemetry.position_unusable(f"{position.replica}/{position.dp_rank}", reason)
        return False

    def _is_of(self, position: PositionRecord, ends: Mapping[int, int]) -> bool:
        """Return whether a position fits the log as it is."""
        partition = partition_of(position.replica, self._log.partitions)
        if not self._is_of_topic(position) or position.partition != partition:
            return False
        return position.offset < ends[partition]

    def _is_of_topic(self, position: PositionRecord) -> bool:
        return not self._topic_id or position.topic_id in ("", self._topic_id)

    async def _write(self, positions: Sequence[PositionRecord]) -> None:
        """Write positions; what fails is reported and due again."""
        try:
            await self._send(positions)
        except KAFKA_FAILURES as error:
            self._telemetry.positions_not_written(failure_reason(error))

    async def _send_surely(self, positions: Sequence[PositionRecord]) -> None:
        """Write positions. Raises PositionsUnwritable."""
        try:
            await self._send(positions)
        except KAFKA_FAILURES as error:
            raise PositionsUnwritable(self.topic, failure_reason(error)) from error

    async def _send(self, positions: Sequence[PositionRecord]) -> None:
        """Write positions, and return when that is acknowledged; what fails is due again."""
        by_partition: dict[int, list[tuple[bytes, bytes]]] = {}
        for position in positions:
            key = position_key(*position.source)
            partition = partition_of_key(key, self._partitions)
            by_partition.setdefault(partition, []).append((key, msgspec.msgpack.encode(position)))
        try:
            async with self._writing:
                for partition, records in by_partition.items():
                    await asyncio.wait_for(
                        self._log.write(self.topic, partition, records), WRITE_TIMEOUT_SECONDS
                    )
        except BaseException:
            self._ledger.unwritten(positions)
            raise
        self._ledger.written(positions)
