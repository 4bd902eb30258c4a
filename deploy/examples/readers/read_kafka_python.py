# /// script
# requires-python = ">=3.10"
# dependencies = ["kafka-python==3.0.12", "zstandard==0.25.0"]
# ///
"""Show the committed records of a topic, one JSON object a line, until nothing has come for five seconds.

    uv run read_kafka_python.py 127.0.0.1:9092 kvlens.figures.v1 MY_GROUP [read_uncommitted]

kafka-python reads zstd with zstandard, and committed records only where it is told so. Keep its polls long:
where one ends while the client joins its group again, 3.0.12 never takes the partitions that it gets.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time

from kafka import KafkaConsumer
from kafka.errors import UnsupportedCodecError

servers, topic, group, *isolation = sys.argv[1:]
consumer = KafkaConsumer(
    topic,
    bootstrap_servers=servers.split(","),
    group_id=group,
    auto_offset_reset="earliest",
    enable_auto_commit=False,
    isolation_level=isolation[0] if isolation else "read_committed",
)
until = time.monotonic() + 60
try:
    while time.monotonic() < until:
        for records in consumer.poll(timeout_ms=5_000).values():
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
except UnsupportedCodecError:
    print("the topic is compressed with zstd: pip install zstandard", file=sys.stderr)
    sys.exit(69)
consumer.commit()
consumer.close()
