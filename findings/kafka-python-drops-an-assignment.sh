#!/bin/sh
# kafka-python 3.0.12: a consumer of a group, alone in it, whose topic is made some seconds after it subscribed.
#
# Guess: as soon as the client sees the topic, it joins again, gets the partitions and reads, however short its polls are.
# Seen:  with polls that are shorter than joining takes (here 100 ms), it joins, the broker gives it all partitions, and it
#        never takes them: no record, no error, for ever. It joins because the topic's partitions are others than when it
#        last assigned them, and while it waits it notes that they are the same now; where a poll ends meanwhile, the next
#        one asks "must I join?", hears no, and never looks at the answer. One long poll reads; 2.3.3 reads with short ones.
#        The same happens at the start on a busy machine, if joining is faster than the first look at the topic.
# The broker is that of librdkafka's tests, in this process, which takes 3 s to let a group's first member in, as Kafka does.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
python3 -m pip install --quiet --target "$dir/librdkafka" confluent-kafka==2.16.1
for version in 3.0.12 2.3.3; do
  python3 -m pip install --quiet --target "$dir/$version" "kafka-python==$version"
done
cat > "$dir/run.py" <<'PYTHON'
import importlib.metadata
import sys
import threading
import time

from confluent_kafka import Producer
from kafka import KafkaConsumer

producer = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 1, "log_level": 0})
broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
poll_ms, seconds = int(sys.argv[1]), 20


def write():
    """The broker makes the topic when somebody writes to it."""
    for number in range(10):
        producer.produce("topic", str(number))
    producer.flush()


consumer = KafkaConsumer(
    "topic",
    bootstrap_servers=[f"{broker.host}:{broker.port}"],
    group_id="group",
    auto_offset_reset="earliest",
    metadata_max_age_ms=500,
    api_version=(2, 6),
)
later = threading.Timer(6, write)
later.start()
count, until = 0, time.monotonic() + seconds
while time.monotonic() < until and count < 10:
    count += sum(map(len, consumer.poll(timeout_ms=poll_ms).values()))
version = importlib.metadata.version("kafka-python")
print(f"kafka-python {version}, polls of {poll_ms} ms: {count} of 10 records, {len(consumer.assignment())} partitions")
PYTHON
ran() { PYTHONPATH="$dir/$1:$dir/librdkafka" timeout 120 python3 "$dir/run.py" "$2" 2> "$dir/errors" | tee -a "$dir/seen"; }
ran 3.0.12 100
ran 3.0.12 20000
ran 2.3.3 100
cat > "$dir/expected" <<'EXPECTED'
kafka-python 3.0.12, polls of 100 ms: 0 of 10 records, 0 partitions
kafka-python 3.0.12, polls of 20000 ms: 10 of 10 records, 4 partitions
kafka-python 2.3.3, polls of 100 ms: 10 of 10 records, 4 partitions
EXPECTED
diff "$dir/expected" "$dir/seen" && echo "as described"
