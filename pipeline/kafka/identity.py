"""Checks that topics are still the same ones: by their ids and partitions, never by an offset.

A topic that is deleted and made again has the same name, and offsets that may even be greater than before.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Container, Iterable, Mapping

from aiokafka.client import AIOKafkaClient

from connectors.kafka.errors import KAFKA_FAILURES, TopicMadeAgain
from connectors.kafka.security import client_options
from connectors.kafka.topic_metadata import TopicMetadata, topic_metadata
from pipeline.errors import COMPUTE_AGAIN, TopicMismatch
from schemas.settings import Kafka

LOOK_SECONDS = 5.0
"""Between two looks while nothing is committed."""
_ANSWER_SECONDS = 5.0
OF_CHECKPOINTS = f"what the checkpoints hold is of the old one; {COMPUTE_AGAIN}"
OF_MEMORY = "this process ends; the next one begins with what the topic holds now"


def require_same(
    known: Mapping[str, str], now: Mapping[str, str], *, saved: Container[str] | None = None
) -> None:
    """Raise TopicMadeAgain for the first topic that has another id than is known of it.

    Both map names to ids. Brokers before 2.8 have none: such a topic cannot be distinguished from another.
    `saved`: the topics that checkpoints are of, all by default.
    """
    for name, before in known.items():
        found = now.get(name, "")
        if before and found and before != found:
            follows = OF_CHECKPOINTS if saved is None or name in saved else OF_MEMORY
            raise TopicMadeAgain(name, before, found, follows)


class TopicWatch:
    """Checks every few seconds that the topics of a process are those that it found when it began."""

    def __init__(self, kafka: Kafka, topics: Iterable[TopicMetadata], *, saved: Container[str]) -> None:
        """`saved`: names of those that checkpoints are of."""
        self._kafka = kafka
        self._saved = saved
        self._topics = {topic.name: topic for topic in topics}
        self._client: AIOKafkaClient | None = None
        self._looking = asyncio.Lock()

    @property
    def ids(self) -> dict[str, str]:
        """The topics' ids by name, as far as the brokers give them."""
        return {name: topic.id for name, topic in self._topics.items() if topic.id}

    async def run(self) -> None:
        """Look until cancelled. Raises TopicMadeAgain, TopicMismatch and CertificateUnreadable."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Raise TopicMadeAgain or TopicMismatch for a topic that has another id or more partitions.

        Brokers that do not answer, and a topic that is gone, are reported by what uses them.
        """
        try:
            async with self._looking:
                found = await asyncio.wait_for(self._look(), _ANSWER_SECONDS)
        except KAFKA_FAILURES:
            await self.close()
            return
        require_same(self.ids, {name: topic.id for name, topic in found.items()}, saved=self._saved)
        for name, topic in found.items():
            before = self._topics[name].partitions
            if topic.partitions and topic.partitions != before:
                raise TopicMismatch(name, topic.partitions, before, "as many as it had at the start")

    async def _look(self) -> dict[str, TopicMetadata]:
        if self._client is None:
            client = AIOKafkaClient(**client_options(self._kafka))
            try:
                await client.bootstrap()
            except BaseException:
                await client.close()
                raise
            self._client = client
        return await topic_metadata(self._client, self._topics)

    async def close(self) -> None:
        """Disconnect; the next look connects again."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(*KAFKA_FAILURES):
                await client.close()
