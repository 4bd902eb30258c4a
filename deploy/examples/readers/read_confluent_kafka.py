# /// script
# requires-python = ">=3.10"
# dependencies = ["confluent-kafka==2.16.1"]
# ///
"""Show the committed records of a topic, one JSON object a line, until nothing has come for five seconds.

    uv run read_confluent_kafka.py 127.0.0.1:9092 kvlens.figures.v1 MY_GROUP [read_uncommitted]

confluent-kafka brings zstd and reads committed records by default.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time

from confluent_kafka import Consumer

servers, topic, group, *isolation = sys.argv[1:]
consumer = Consumer(
    {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": isolation[0] if isolation else "read_committed",
    }
)
consumer.subscribe([topic])
until = time.monotonic() + 60
while time.monotonic() < until:
    record = consumer.poll(0.2)
    if record is None:
        continue
    if record.error():
        sys.exit(str(record.error()))
    key, value = record.key(), record.value()
    shown = {
        "partition": record.partition(),
        "offset": record.offset(),
        "time": record.timestamp()[1],
        "key": None if key is None else key.decode(),
        "bytes": None if value is None else len(value),
        "sha256": None if value is None else hashlib.sha256(value).hexdigest(),
    }
    print(json.dumps(shown), flush=True)
    until = time.monotonic() + 5
reached = [place for place in consumer.position(consumer.assignment()) if place.offset >= 0]
if reached:
    consumer.commit(offsets=reached, asynchronous=False)
consumer.close()
