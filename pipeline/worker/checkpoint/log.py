"""Checkpoints on their way to Kafka: a fenced writer per partition, one transaction per checkpoint.

The transactional id is bound to the input partition. Opening it makes the broker abort what a former owner
left open and refuse whatever that tries later, so a partition has one writer however late a frozen process
wakes up. A transaction holds outputs, checkpoint records and the input offset: all of them count or none.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import structlog
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    IllegalOperation,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    KafkaError,
    NotEnoughReplicasError,
    ProducerFenced,
)
from aiokafka.structs import OffsetAndMetadata

from connectors.kafka.errors import KAFKA_FAILURES, failure_reason, partition_known
from connectors.kafka.private import transaction_end
from connectors.kafka.security import client_options
from pipeline.errors import CheckpointFailed, KafkaUnavailable
from pipeline.kafka.committed import Committed, committed_before
from pipeline.kafka.portions import in_portions
from pipeline.kafka.transactions import transactional_id
from pipeline.worker.checkpoint.batches import BATCH_BYTES, batches
from pipeline.worker.checkpoint.record import Record
from schemas.settings import Kafka

TRANSACTION_TIMEOUT_MS = 12_000
"""The broker aborts a transaction left open for so long; until then readers of committed records wait."""
_REQUEST_TIMEOUT_MS = 10_000
_COMMIT_SECONDS = 30.0
_MAX_RECORD_BYTES = 8 << 20
PORTION_BYTES = 2 << 20
"""Bytes of a transaction's records on their way at once: the client packs what waits into one request, which
holds up the event loop for 15 ms per MiB."""

_log = structlog.get_logger(__name__)


class CheckpointLog:
    """The transactional writer of (group, input topic, partition)."""

    def __init__(self, kafka: Kafka, *, group: str, topic: str, partition: int) -> None:
        self.partition = partition
        self.topic = topic
        self._kafka = kafka
        self._group = group
        self._producer: AIOKafkaProducer | None = None
        self._writer = secrets.token_hex(8)
        self._committed: Committed | None = None

    def continues(self, committed: Committed) -> None:
        """Go on after this transaction, which was the last one when the state was loaded."""
        self._committed = committed

    async def open(self) -> None:
        """Fence former owners; what they left open is aborted. Raises KafkaUnavailable."""
        producer = AIOKafkaProducer(
            transactional_id=transactional_id(self._group, self.topic, self.partition),
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            # Brokers refuse for a moment what closely follows the previous transaction.
            retry_backoff_ms=20,
            max_request_size=_MAX_RECORD_BYTES,
            max_batch_size=BATCH_BYTES,
            linger_ms=0,
            # For checkpoints: brokers that compact them would decompress and compress them again.
            compression_type=None,
            **client_options(self._kafka),
        )
        try:
            await producer.start()
        except KAFKA_FAILURES as error:
            await producer.stop()
            raise KafkaUnavailable(self._kafka.bootstrap_servers, failure_reason(error)) from error
        except asyncio.CancelledError:
            await producer.stop()
            raise
        self._producer = producer

    async def commit(self, next_offset: int, records: Sequence[Record]) -> None:
        """Commit the records and the offset together.

        Raises CheckpointFailed: the caller's state no longer matches the log then and must be dropped.
        """
        if self._producer is None:
            raise CheckpointFailed(self.topic, self.partition, "not open", fenced=False)
        try:
            await asyncio.wait_for(self._commit(self._producer, next_offset, records), _COMMIT_SECONDS)
        except (ProducerFenced, InvalidProducerEpoch) as error:
            raise CheckpointFailed(self.topic, self.partition, failure_reason(error), fenced=True) from error
        except asyncio.TimeoutError as error:
            reason = f"no answer within {_COMMIT_SECONDS:.0f} s: brokers away, or too few replicas in sync"
            raise CheckpointFailed(self.topic, self.partition, reason, fenced=False) from error
        except (KafkaError, IllegalOperation, OSError, ValueError) as error:
            raise CheckpointFailed(self.topic, self.partition, failure_reason(error), fenced=False) from error

    async def _commit(self, producer: AIOKafkaProducer, next_offset: int, records: Sequence[Record]) -> None:
        try:
            await self._transaction(producer, next_offset, records)
        except (KafkaError, IllegalOperation) as error:
            # The error of a record is a copy without the cause, and for later records the client only says
            # that there is no transaction; the error of the transaction has the cause.
            end = transaction_end(producer)
            failure = (end.exception() if end.done() else None) or error
        else:
            failure = None
        if failure is not None:
            if not _is_forgotten(failure):
                raise failure
            await self._transaction(await self._opened_anew(), next_offset, records)
        self._committed = Committed(next_offset, self._writer)

    async def _opened_anew(self) -> AIOKafkaProducer:
        """Return a producer in place of one whose transactional id the brokers have forgotten.

        They forget one that committed nothing for `transactional.id.expiration.ms`, as in a partition without
        sources. A frozen owner gets the same answer if another one opened the id since. So it is opened as at
        the start, and if another owner has committed meanwhile, this one is the frozen one.
        """
        _log.warning(
            "Kafka forgot the transactional id of a partition that was idle for longer than the brokers' "
            "transactional.id.expiration.ms; it is opened again",
            topic=self.topic,
            partition=self.partition,
            transactional_id=transactional_id(self._group, self.topic, self.partition),
        )
        await self.close()
        await self.open()
        found = await committed_before(self._kafka, self._group, self.topic, [self.partition])
        if found[self.partition] != self._committed or self._producer is None:
            raise CheckpointFailed(
                self.topic, self.partition, "somebody else committed since its last checkpoint", fenced=True
            )
        return self._producer

    async def _transaction(
        self, producer: AIOKafkaProducer, next_offset: int, records: Sequence[Record]
    ) -> None:
        await producer.begin_transaction()
        sent: list[asyncio.Future[Any]] = []
        for portion in in_portions(
            records, lambda record: len(record.value or b""), most_bytes=PORTION_BYTES
        ):
            await asyncio.gather(*sent)
            sent = [sending async for sending in self._sent(producer, portion)]
        await producer.send_offsets_to_transaction(
            {TopicPartition(self.topic, self.partition): OffsetAndMetadata(next_offset, self._writer)},
            self._group,
        )
        await asyncio.gather(*sent)
        await producer.commit_transaction()

    async def _sent(
        self, producer: AIOKafkaProducer, portion: Sequence[Record]
    ) -> AsyncGenerator[asyncio.Future[Any], None]:
        """Send records; yield the future of each one, or of each batch of them."""
        sent: asyncio.Future[Any]
        for record in portion:
            if not record.compressed:
                with partition_known(record.topic, record.partition):
                    sent = await producer.send(
                        record.topic, record.value, key=record.key, partition=record.partition
                    )
                sent.add_done_callback(_retrieved)
                yield sent
        compressed = (record for record in portion if record.compressed)
        for (topic, partition), batch in batches(compressed, self._kafka, transactional=True):
            with partition_known(topic, partition):
                sent = await producer.send_batch(batch, topic, partition=partition)
            sent.add_done_callback(_retrieved)
            yield sent

    async def close(self) -> None:
        """Disconnect; nothing may be in flight."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()


def _retrieved(sent: asyncio.Future[Any]) -> None:
    """Retrieve the error of a record, if it failed: the transaction's future reports it."""
    if not sent.cancelled():
        sent.exception()


def _is_forgotten(cause: BaseException | None) -> bool:
    """Return whether an error comes from a transactional id that brokers do not know.

    aiokafka's sender takes their answer for a bug of its own and hides it as the cause of another error.
    """
    while cause is not None:
        if isinstance(cause, InvalidProducerIdMapping):
            return True
        cause = cause.__cause__
    return False


class _Expected(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and _is_forgotten(record.exc_info[1]):
            return False
        return NotEnoughReplicasError not in (record.args or ())


def without_expected_warnings() -> None:
    """Keep aiokafka's sender, and its futures that nobody waits for, from logging ordinary events.

    Brokers that look up whether a partition is part of a transaction (KIP-890) answer its first records with
    "not enough replicas" until they know, and aiokafka sends them again. If replicas are really missing, the
    commit times out and reports it. Of an id that brokers forgot, `_opened_anew` logs a line.
    """
    for name in ("aiokafka.producer.sender", "asyncio"):
        logging.getLogger(name).addFilter(_Expected())
