# /// script
# requires-python = ">=3.10"
# dependencies = ["aiokafka==0.14.0", "cramjam==2.14.0", "msgspec==0.22.0"]
# ///
"""Rebuild what each replica's GPU holds from the events topic alone. An example to copy and change.

    python replica_cache.py 127.0.0.1:9092 kvlens.events.v1

It reads the topic from its beginning to its end and prints how many blocks each replica holds. It needs what
stands above, where `uv run` and `pipx run` find it: cramjam is what aiokafka reads zstd with. What it leaves
out, docs/exactness.md has: repeated announcements, clears of one group, two granularities, trust.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, defaultdict
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import UnsupportedCodecError

Caches = dict[tuple[str, int], Counter[tuple[int, bytes]]]
"""Copies of each block (group, hash), by replica and rank."""


class Reader:
    """Applies records of the topic: each batch once, and a new engine session begins with an empty cache."""

    def __init__(self) -> None:
        self.caches: Caches = defaultdict(Counter)
        self._reached: dict[tuple[str, int], tuple[int, int]] = {}

    def apply(self, value: bytes) -> None:
        record = msgspec.msgpack.decode(value)
        source = (record["replica"], record["dp_rank"])
        life = record["incarnation"]
        before = self._reached.get(source, (0, -1))
        if life > before[0]:
            self.caches[source].clear()
            before = (life, -1)
        for seq, _, _, events, *_ in record["batches"] if life == before[0] else ():
            if seq is not None and seq <= before[1]:
                continue
            before = (life, before[1] if seq is None else seq)
            for event in events:
                self._event(self.caches[source], event)
        self._reached[source] = max(before, self._reached.get(source, before))

    def _event(self, cache: Counter[tuple[int, bytes]], event: dict[str, Any]) -> None:
        medium, group = event.get("medium", "gpu"), event.get("group_idx", 0)
        if event["type"] == "closed" or (event["type"] == "cleared" and medium in ("gpu", "")):
            cache.clear()
        elif event["type"] in ("stored", "removed") and medium == "gpu":
            packed, change = event["hashes"], 1 if event["type"] == "stored" else -1
            for at in range(0, len(packed), 8):
                block = (group, packed[at : at + 8])
                cache[block] += change
                if cache[block] <= 0:
                    del cache[block]


async def read(servers: str, topic: str) -> Caches:
    """Return what every replica holds by all that the topic has now."""
    reader = Reader()
    # Without a group every partition is its own, and it begins at their beginnings.
    options = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer(topic, bootstrap_servers=servers, **options) as consumer:
        ends = await consumer.end_offsets(consumer.assignment())
        while any([await consumer.position(place) < end for place, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    reader.apply(record.value)
    return reader.caches


if __name__ == "__main__":
    try:
        found = asyncio.run(read(*sys.argv[1:]))
    except UnsupportedCodecError:
        sys.exit(
            "the topic is compressed with zstd, for which aiokafka needs cramjam: pip install cramjam==2.14.0"
        )
    for (replica, rank), blocks in sorted(found.items()):
        sys.stdout.write(f"{replica}/{rank}: {len(blocks):,} blocks\n")
