"""Reads the last value of each key in a partition of a compacted topic."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from connectors.kafka.consumer import stop_consumer
from connectors.kafka.errors import failure_reason
from connectors.kafka.security import client_options
from connectors.kafka.topics import topic_name
from pipeline.errors import KafkaUnavailable
from schemas.settings import Settings

_WAIT_MS = 50
_SILENT_FETCHES = 600


async def latest_values(settings: Settings, name: str, partition: int) -> dict[bytes, bytes]:
    """Return the last committed value of each key in a topic of `topics.toml`, as the topic ends now.

    Raises CertificateUnreadable and KafkaUnavailable.
    """
    kafka = settings.kafka
    place = TopicPartition(topic_name(kafka, name), partition)
    consumer = AIOKafkaConsumer(
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=_WAIT_MS,
        **client_options(kafka),
    )
    latest: dict[bytes, bytes] = {}
    try:
        try:
            await consumer.start()
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            [end] = (await consumer.end_offsets([place])).values()
            silent = 0
            while await consumer.position(place) < end:
                fetched = await consumer.getmany(place, timeout_ms=_WAIT_MS)
                silent = 0 if fetched else silent + 1
                if silent > _SILENT_FETCHES:
                    raise KafkaUnavailable(kafka.bootstrap_servers, f"records of {place.topic} did not come")
                for message in fetched.get(place, ()):
                    if message.value is None:
                        latest.pop(message.key, None)
                    else:
                        latest[message.key] = message.value
        finally:
            await stop_consumer(consumer)
    except (KafkaError, OSError) as error:
        raise KafkaUnavailable(kafka.bootstrap_servers, failure_reason(error)) from error
    return latest
