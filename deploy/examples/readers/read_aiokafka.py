# /// script
# requires-python = ">=3.10"
# dependencies = ["aiokafka==0.14.0", "cramjam==2.14.0"]
# ///
"""Show the committed records of a topic, one JSON object a line, until nothing has come for five seconds.

    uv run read_aiokafka.py 127.0.0.1:9092 kvlens.figures.v1 MY_GROUP [read_uncommitted]

aiokafka reads zstd with cramjam, and committed records only where it is told so.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import UnsupportedCodecError


async def show(servers: str, topic: str, group: str, isolation: str = "read_committed") -> None:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=isolation,
    )
    async with consumer:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    value = record.value
                    shown = {
                        "partition": record.partition,
                        "offset": record.offset,
                        "time": record.timestamp,
                        "key": None if record.key is None else record.key.decode(),
                        "bytes": None if value is None else len(value),
                        "sha256": None if value is None else hashlib.sha256(value).hexdigest(),
                    }
                    print(json.dumps(shown), flush=True)
                until = time.monotonic() + 5
        await consumer.commit()


try:
    asyncio.run(show(*sys.argv[1:]))
except UnsupportedCodecError:
    print("the topic is compressed with zstd: pip install cramjam==2.14.0", file=sys.stderr)
    sys.exit(69)
