"""Reports of LMCache's servers on their way, and what they must come to by their own directory."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.support.inputs.captures import reported, reported_truth

NAME = "lmcache-0.5.6"
MODEL = "org/model-x"
POOL = "pool:s3"
_OTHER_POOL = "hfbucket"
Records = Sequence[tuple[bytes, bytes]]


def make_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Make a topic of the servers'."""

    async def make() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, partitions, 1)])
        finally:
            await admin.close()

    asyncio.run(make())


def send(
    bootstrap_servers: str, topic: str, records: Iterable[tuple[bytes, bytes]], at: float | None = None
) -> None:
    """Write records in their order, each to the partition of its key; their time is `at`, or now."""
    timestamp_ms = None if at is None else int(at * 1000)

    async def sending() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all") as producer:
            for key, value in records:
                await producer.send(topic, value, key=key, timestamp_ms=timestamp_ms)

    asyncio.run(sending())


def post(port: int, content_type: str, body: bytes, token: str) -> None:
    """Send a request of a server's; it must be taken."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/events",
        body,
        {"Content-Type": content_type, "Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200


def other_servers(body: bytes) -> bytes:
    """Return a request as servers and a pool of other names would send it."""
    request = json.loads(body)
    for batch in request["batches"]:
        batch["instance_id"] = f"other-{batch['instance_id']}"
        if batch["shared"]:
            batch["backend"] = _OTHER_POOL
    return json.dumps(request).encode()


def of_others(replica: str) -> str:
    """Return the name of a replica among those of `other_servers`."""
    return replica.replace(POOL, f"pool:{_OTHER_POOL}") if replica.startswith(POOL) else f"other-{replica}"


def held_by_others() -> dict[tuple[str, str, int], tuple[int, int]]:
    """What `held` is of `other_servers`."""
    medium_of_pool = f"lmcache-l2-{POOL.partition(':')[2]}"
    return {
        (
            of_others(replica),
            f"lmcache-l2-{_OTHER_POOL}" if medium == medium_of_pool else medium,
            group,
        ): counts
        for (replica, medium, group), counts in held().items()
    }


def held() -> dict[tuple[str, str, int], tuple[int, int]]:
    """(replica, medium, group) to entries and blocks, as the servers' directory knew them at the end.

    Each object is one, of whichever worker or salt.
    """
    found: Counter[tuple[str, str, int]] = Counter()
    for place, objects in reported_truth(NAME)["final"].items():
        storage = place.partition(":")[2]
        for kv_rank, object_group, _, _ in objects:
            workers, worker = kv_rank >> 24, kv_rank >> 16 & 0xFF
            assert object_group == 0
            group = sum(range(workers)) + worker
            medium = f"lmcache-l2-{storage}" if storage else "cpu"
            found[f"{place}@{MODEL}", medium, group] += 1
    return {where: (count, count) for where, count in found.items()}


def batches() -> dict[str, int]:
    """By replica: batches of every server that concerns it, from the first one on that does."""
    seen: set[tuple[str, int, int]] = set()
    members: set[tuple[str, str]] = set()
    found: Counter[str] = Counter()
    for _, value in reported(NAME, "records"):
        for batch in json.loads(value)["batches"]:
            number = batch["instance_id"], batch["incarnation"], batch["seq"]
            if number in seen:
                continue
            seen.add(number)
            place = _storage(batch)
            if place is not None:
                members.add((batch["instance_id"], place))
            found[f"{batch['instance_id']}@{MODEL}"] += 1
            for server, storage in members:
                if server == batch["instance_id"]:
                    found[f"{storage}@{MODEL}"] += 1
    return dict(found)


@dataclass
class Place:
    """A server's memory, or a storage: what is there, and what was done with it."""

    held: dict[tuple[Any, ...], list[int]] = field(default_factory=dict)
    """By object: its size, and how often it was accessed."""
    capacity: int = 0
    figures: Counter[str] = field(default_factory=Counter)


def used() -> dict[str, Place]:
    """By replica: bytes, capacity and accesses as the servers reported them, each batch once."""
    places: dict[str, Place] = defaultdict(Place)
    reached: dict[str, tuple[int, int]] = {}
    for _, value in reported(NAME, "records"):
        for batch in json.loads(value)["batches"]:
            server, life = batch["instance_id"], (batch["incarnation"], batch["seq"])
            if life <= reached.get(server, (0, 0)):
                continue
            if life[0] > reached.get(server, life)[0]:
                places[f"{server}@{MODEL}"].held.clear()
            reached[server] = life
            place = places[f"{server}@{MODEL}" if batch["tier"] == "l1" else f"{_storage(batch)}@{MODEL}"]
            if batch["event_type"] == "config":
                place.capacity = batch["capacity_bytes"]
            for entry in batch["entries"]:
                _use(place, batch["event_type"], tuple(entry["key"].values()), entry["size_bytes"])
    places.pop(f"None@{MODEL}", None)
    return places


def _use(place: Place, what: str, key: tuple[Any, ...], size: int) -> None:
    known = place.held.get(key)
    if what == "store":
        place.figures["stored_objects"] += known is None
        place.figures["stored_bytes"] += 0 if known else size
        place.held.setdefault(key, [size, 0])
    elif what == "delete":
        place.figures["left"] += known is not None
        place.figures["left_unused"] += known is not None and not known[1]
        place.held.pop(key, None)
    elif known is None:
        place.figures["unknown_accesses"] += 1
    else:
        place.figures["accesses"] += 1
        place.figures["accessed_bytes"] += known[0]
        place.figures["first_accesses"] += not known[1]
        known[1] += 1


def _storage(batch: dict[str, Any]) -> str | None:
    """The storage that a batch makes known: by what is in it, or by a capacity."""
    says = batch["entries"] if batch["event_type"] != "config" else batch["capacity_bytes"]
    if batch["tier"] == "l1" or not says:
        return None
    return f"pool:{batch['backend']}" if batch["shared"] else f"{batch['instance_id']}:{batch['backend']}"
