"""All that kvlens uses of aiokafka beyond its documented interface: any release may change it.

`tests/unit/connectors/kafka/test_private.py` lists what this rests on, and fails when that changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection, OAuthAuthenticator, collect_hosts, create_conn
from aiokafka.consumer.fetcher import FetchResult
from aiokafka.errors import SaslAuthenticationFailed
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record import default_records

from connectors.kafka.renewed import RenewedPassword
from connectors.kafka.topics import Compression

# A connection

_handshake = AIOKafkaConnection._do_sasl_handshake


async def _with_the_password_of_now(connection: AIOKafkaConnection) -> None:
    """Use the current password: upstream gives each connection the string that its client was made with."""
    if isinstance(connection._sasl_plain_password, RenewedPassword):
        connection._sasl_plain_password = connection._sasl_plain_password.source.now()
    await _handshake(connection)


class _Authenticator(OAuthAuthenticator):  # type: ignore[misc]
    """Raises for a refusal, an answer with a reason, which upstream takes for success."""

    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None:
        if self._token_sent and payload:
            raise SaslAuthenticationFailed(f"the token is refused: {payload.decode(errors='replace')}")
        step: tuple[bytes, bool] | None = await super().step(payload)
        return step


def _authenticator(connection: AIOKafkaConnection) -> _Authenticator:
    return _Authenticator(sasl_oauth_token_provider=connection._sasl_oauth_token_provider)


def complete_the_login() -> None:
    """Have every connection of this process log on with the current password, and notice refused tokens.

    Called when `connectors.kafka.security` is imported, and so before there is any client.
    """
    AIOKafkaConnection._do_sasl_handshake = _with_the_password_of_now
    AIOKafkaConnection.authenticator_oauth = _authenticator


def addresses(bootstrap_servers: str) -> list[tuple[str, int]]:
    return [(host, port) for host, port, _ in collect_hosts(bootstrap_servers)]


async def log_on(host: str, port: int, seconds: float, options: dict[str, Any]) -> None:
    """Connect to one broker, log on and disconnect; `options` are a client's, without its servers."""
    connection = await create_conn(host, port, request_timeout_ms=int(seconds * 1000), **options)
    await connection.close()


# Records


def pack_with(packed: Callable[[bytes], bytes], unpacked: Callable[[bytes], bytes]) -> None:
    """Let all clients of this process compress and decompress zstd batches with these functions."""
    # Both modules, because the class comes from the compiled one where that exists.
    for module in (default_records, import_module(default_records.DefaultRecordBatch.__module__)):
        vars(module).update(zstd_encode=packed, zstd_decode=unpacked)


Batch = BatchBuilder


def new_batch(most_bytes: int, compression: Compression, *, transactional: bool) -> BatchBuilder:
    """Return a batch for `send_batch`, which has its own compression."""
    kinds = default_records.DefaultRecordBatch
    codecs = {"none": kinds.CODEC_NONE, "gzip": kinds.CODEC_GZIP, "zstd": kinds.CODEC_ZSTD}
    return BatchBuilder(most_bytes, codecs[compression], is_transactional=transactional)


# Clients


def client_of(holder: AIOKafkaConsumer | AIOKafkaAdminClient) -> AIOKafkaClient:
    return holder._client


async def ask_node(admin: AIOKafkaAdminClient, node: int, request: Any) -> Any:
    """Return the answer of one broker."""
    return await admin._send_request_to_node(node, request)


def transaction_end(producer: AIOKafkaProducer) -> asyncio.Future[Any]:
    """Return a future that is done when the transaction has ended, with the error that ended it, if any."""
    end: asyncio.Future[Any] = producer._txn_manager.wait_for_transaction_end()
    return end


# A consumer


def fetch_so(consumer: AIOKafkaConsumer, *, wait_ms: int, least_bytes: int, committed: bool) -> None:
    """Set how a consumer fetches, before it starts; `committed`: nothing of open or aborted transactions."""
    consumer._fetch_max_wait_ms, consumer._fetch_min_bytes = wait_ms, least_bytes
    if committed:
        consumer._isolation_level = "read_committed"


def hold_fetches(consumer: AIOKafkaConsumer, wait_ms: int) -> None:
    """Let fetches with little to return wait at the broker for `wait_ms` from now on."""
    consumer._fetcher._fetch_max_wait_ms = wait_ms


def member_id(consumer: AIOKafkaConsumer) -> str:
    """Return the id that the consumer has in its group."""
    return str(consumer._coordinator.member_id)


def leave_as_they_came(consumer: AIOKafkaConsumer) -> None:
    """Have a consumer return waiting records as the compiled reader made them: a copy costs more than that.

    Like a `ConsumerRecord` they have the offset, key, value, headers and both times.
    """
    for result in consumer._fetcher._records.values():
        if isinstance(result, FetchResult) and result.has_more():
            result._partition_records._consumer_record = _as_it_came


def _as_it_came(topic_partition: TopicPartition, record: Any) -> Any:
    return record
