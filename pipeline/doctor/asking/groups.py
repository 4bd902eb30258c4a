"""Asks the broker where a consumer group stands, and counts the records that wait for it.

There are more offsets than records: transaction markers have some, and so has what was aborted or compacted.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError, TopicAuthorizationFailedError

from pipeline.doctor.facts import GroupFacts

COUNTED_BYTES = 16 << 20
COUNTED_SECONDS = 2.0
"""What waits is read and counted up to these bounds; beyond them only offsets are known."""
_COORDINATOR_SECONDS = 0.3
_COORDINATOR_TRIES = 10
"""A broker that never had a group must first create the topic of groups' offsets."""


async def ask_group(
    admin: AIOKafkaAdminClient, consumer: AIOKafkaConsumer, name: str, topic: str, partitions: int
) -> GroupFacts:
    """Return who is in a group and what waits for it; `consumer` reads committed records."""
    for _ in range(_COORDINATOR_TRIES):
        try:
            (answer,) = await admin.describe_consumer_groups([name])
            break
        except GroupCoordinatorNotAvailableError:
            await asyncio.sleep(_COORDINATOR_SECONDS)
    else:
        return GroupFacts(name, topic, 0, {}, {})
    members = sum(len(group[5]) for group in answer.groups)
    committed = await admin.list_consumer_group_offsets(name)
    places = [TopicPartition(topic, number) for number in range(partitions)]
    ends = await consumer.end_offsets(places)
    starts = await consumer.beginning_offsets(places)
    for place in places:
        # An offset beyond the end is of a deleted topic of the same name.
        if place in committed and committed[place].offset <= ends[place]:
            starts[place] = max(starts[place], committed[place].offset)
    waiting, left, since = await _counted(consumer, starts, ends)
    return GroupFacts(
        name,
        topic,
        members,
        {place.partition: waiting[place] + left[place] for place in places},
        {},
        {place.partition: at for place, at in since.items()},
        at_most=frozenset(place.partition for place in places if left[place]),
    )


async def _counted(
    consumer: AIOKafkaConsumer, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[TopicPartition, float]]:
    """Return how many records were counted, how many offsets were left out because of the bounds, and when
    the first record was written."""
    records = dict.fromkeys(starts, 0)
    since: dict[TopicPartition, float] = {}
    left = {place: max(0, ends[place] - start) for place, start in starts.items()}
    behind = [place for place, offsets in left.items() if offsets]
    if behind:
        consumer.assign(behind)
    for place in behind:
        consumer.seek(place, starts[place])
    size = 0
    deadline = time.monotonic() + COUNTED_SECONDS
    # A user who may see a topic's offsets but not its records gets the upper bound.
    with contextlib.suppress(TopicAuthorizationFailedError):
        while behind and size < COUNTED_BYTES and time.monotonic() < deadline:
            for place, fetched in (await consumer.getmany(*behind, timeout_ms=200)).items():
                new = [record for record in fetched if record.offset < ends[place]]
                records[place] += len(new)
                if new:
                    since.setdefault(place, new[0].timestamp / 1000)
                size += sum(len(record.value or b"") for record in new)
            for place in list(behind):
                left[place] = max(0, ends[place] - await consumer.position(place))
                if not left[place]:
                    behind.remove(place)
                    consumer.pause(place)
    return records, left, since
