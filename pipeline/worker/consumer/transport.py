"""Faust with what we need changed: start positions, committed reads, a cheaper loop, no wait for tables.

This relies on private parts of Faust: `tests/unit/pipeline/worker/consumer/test_private.py` lists them, and
fails when they have changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from faust.tables import TableManager
from faust.transport.conductor import Conductor
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, AppT
from faust.types.transports import ConsumerT
from mode import Service
from yarl import URL

from connectors.kafka.private import fetch_so, hold_fetches, leave_as_they_came, member_id
from pipeline.worker.consumer.fetched import Chunk, FetchedRecord, in_turns

SHORTEST = 0.05
LONGEST = 0.4
SHARE = 0.1
"""Share of the time between two rounds that a fetch may wait, within these bounds in seconds."""


def fetch_wait(round_seconds: float, *, far_behind: bool) -> float:
    """Return for how many seconds a fetch may wait, for an agent with a round every `round_seconds`."""
    return SHORTEST if far_behind else max(SHORTEST, min(LONGEST, SHARE * round_seconds))


FAUST_LOG = logging.getLogger("faust")
"""Where our subclasses of Faust's services log that they start and stop, as the others do."""

Positions = Callable[[], Mapping[tuple[str, int], int]]
"""Gives the offset to read next of every (topic, partition) whose state is loaded."""

_FETCH_BYTES = 1 << 20
"""A fetch that would return less waits at the broker, up to the longest wait allowed."""
_POLL_SECONDS = 1.0


class Transport(driver.Transport):
    """Assigned to `app.transport`, so that nothing has to be registered with the installation."""

    Consumer: ClassVar[type[ConsumerT]]

    def __init__(
        self, url: list[URL], app: AppT, *, positions: Positions, committed: bool, chunk_bytes: int
    ) -> None:
        """`committed`: never deliver records of open or aborted transactions. Chunks have up to
        `chunk_bytes` and one more record."""
        super().__init__(url, app)
        self.positions = positions
        self.committed = committed
        self.chunk_bytes = chunk_bytes


class _ConsumerThread(driver.AIOKafkaConsumerThread):
    logger = FAUST_LOG

    def _create_worker_consumer(self, transport: driver.Transport) -> AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        # Faust has no settings for these.
        committed = cast(Transport, transport).committed
        fetch_so(consumer, wait_ms=_ms(SHORTEST), least_bytes=_FETCH_BYTES, committed=committed)
        return consumer

    async def seek_all(self, offsets: Mapping[TP, int]) -> None:
        """Seek in the thread that unpacks what was fetched, and between two partitions.

        Faust seeks in its own thread, perhaps while records of the partition are unpacked. That then fails,
        or moves the position past records that were never delivered.
        """
        await self.call_thread(self._seek_all, offsets)

    async def _seek_all(self, offsets: Mapping[TP, int]) -> None:
        consumer = self._ensure_consumer()
        assigned = consumer.assignment()
        for topic_partition, offset in offsets.items():
            if topic_partition in assigned:  # else its seek follows when it comes back
                consumer.seek(topic_partition, offset)
                self.consumer._read_offset[topic_partition] = offset or None

    async def _fetch_records(self, consumer: AIOKafkaConsumer, *args: Any, **kwargs: Any) -> Any:
        # What waits there is unpacked now. That is most of what a worker with much to do fetches; the rest
        # becomes `ConsumerRecord`s, in which the parts that `fetched.py` reads are the same.
        leave_as_they_came(consumer)
        return await super()._fetch_records(consumer, *args, **kwargs)


class _Consumer(driver.Consumer):
    logger = FAUST_LOG

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.last_fetched: dict[TP, int] = {}
        """Offset of the newest record that was fetched since the last seek of the partition."""

    @property
    def member_id(self) -> str:
        """What the group calls this consumer."""
        return member_id(self._thread._ensure_consumer())

    def hold_fetches(self, seconds: float) -> None:
        """From now on, let a fetch with little data wait at the broker for `seconds`."""
        hold_fetches(self._thread._ensure_consumer(), _ms(seconds))

    def on_buffer_full(self, tp: TP) -> None:
        """Keep fetching the partition.

        Upstream leaves it out until its buffer has room, and sleeps for a second if no partition is left.
        Here `_deliver` waits for room, and what comes next is decoded meanwhile.
        """

    def _new_consumer_thread(self) -> _ConsumerThread:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def perform_seek(self) -> None:
        """Seek to where the loaded states are; the group's committed offsets are for lag monitors only."""
        positions = cast(Transport, self.transport).positions()
        offsets = {
            topic_partition: positions[place]
            for topic_partition in self.assignment()
            if (place := (topic_partition.topic, topic_partition.partition)) in positions
        }
        await cast(_ConsumerThread, self._thread).seek_all(offsets)
        for topic_partition in offsets:
            self.last_fetched.pop(topic_partition, None)

    async def _drain_messages(self, fetcher: Any) -> None:
        # Upstream delivers record by record, and wraps each in two tasks to be able to abandon it when the
        # flow stops. Here a message holds many records, and the tasks are made only where delivering really
        # has to wait; a callback that does not suspend is just run.
        stopped = self._stopped.is_set
        fetcher_stopped = cast(Service, fetcher)._stopped.is_set
        try:
            while not (stopped() or fetcher_stopped()):
                fetched, active = await self._wait_next_records(timeout=_POLL_SECONDS)
                if fetched is None or self.should_stop:
                    continue
                if self.flow_active:
                    await self._deliver_all(fetched, active)
                else:
                    await self._let_go()
        except self.consumer_stopped_errors:
            if not self.transport.app.should_stop:
                raise
        except asyncio.CancelledError:
            if not self.transport.app.should_stop:
                raise

    async def _let_go(self) -> None:
        """Drop what was fetched, to be read again: partitions change hands."""
        try:
            await self.perform_seek()
        except KafkaError as error:
            self.log.warning("cannot seek while partitions change hands: %s", error)

    async def _deliver_all(
        self, fetched: Mapping[TP, Sequence[FetchedRecord]], active: set[TP] | None
    ) -> None:
        generation = self.app.consumer_generation_id
        for topic_partition, records in fetched.items():
            if records:
                self.last_fetched[topic_partition] = records[-1].offset
        chunk_bytes = cast(Transport, self.transport).chunk_bytes
        for topic_partition, records in in_turns(fetched, chunk_bytes):
            if not self.flow_active or self.app.consumer_generation_id != generation:
                return
            if active is None or topic_partition in active or topic_partition in self._buffered_partitions:
                await self._deliver(topic_partition, records, generation)

    async def _deliver(self, topic_partition: TP, records: Sequence[FetchedRecord], generation: int) -> None:
        wanted = self._read_offset[topic_partition]
        if wanted is not None and records[0].offset < wanted:
            records = [record for record in records if record.offset >= wanted]
            if not records:
                return
        delivery = self.callback(Chunk(topic_partition, records, generation))
        if self._would_wait(topic_partition):
            await self.wait_first(delivery, self.suspend_flow.wait())
        else:
            await delivery
        self._read_offset[topic_partition] = records[-1].offset

    def _would_wait(self, topic_partition: TP) -> bool:
        flow = self.app.flow_control
        if not flow.is_active():
            return True
        return any(channel.queue.full() for channel in _channels(self.app, topic_partition))


class NoTables(TableManager):
    """Faust's manager of tables, where there are none. Upstream sleeps before consumers join their groups."""

    logger = FAUST_LOG

    async def on_start(self) -> None:
        await self._update_channels()
        await self.recovery.start()


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _channels(app: AppT, topic_partition: TP) -> Iterable[Any]:
    return cast(Iterable[Any], cast(Conductor, app.topics)._tp_index.get(topic_partition, ()))


Transport.Consumer = cast(type[ConsumerT], _Consumer)
