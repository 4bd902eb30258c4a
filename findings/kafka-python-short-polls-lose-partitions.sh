#!/bin/sh
# kafka-python 3.0.12 and 2.3.3: a topic gets two partitions more, and the only consumer of a group polls as `poll()` does
# by default, with a timeout of 0.
#
# Guess: some polls later it has the new partitions and reads them, as with any other timeout.
# Seen:  it never gets them: it goes on with the old ones, without an error, and the records of the others wait for ever;
#        for the broker it has all four. With a timeout of ten seconds it reads all. It joins again since the partitions are
#        others than those it assigned last, and when it assigns them they are the same; if a poll ended meanwhile, the
#        next one asks "must I join?", hears no, and never takes the answer that lies there. 3.0.12 loses its first
#        assignment in the same way, now and then, if it joins before it has seen the topic: then it reads nothing at all.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
for version in 3.0.12 2.3.3; do
  python3 -m pip install --quiet --target "$dir/$version" "kafka-python==$version"
done
cat > "$dir/pom.xml" <<'POM'
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>broker</artifactId><version>0</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.1.0</version></dependency>
  </dependencies>
</project>
POM
mvn -q -B -f "$dir/pom.xml" dependency:copy-dependencies "-DoutputDirectory=$dir/jars"
port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
controller=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat > "$dir/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$dir/data
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
PROPERTIES
export CLASSPATH="$dir/jars/*"
java -Xmx256m kafka.tools.StorageTool format -t 4L6g3nShT-eMCtK--X86sw -c "$dir/server.properties" > "$dir/log" 2>&1
java -Xmx256m kafka.Kafka "$dir/server.properties" >> "$dir/log" 2>&1 &
broker=$!
trap 'kill "$broker"; wait; rm -rf "$dir"' EXIT
cat > "$dir/run.py" <<'PYTHON'
import importlib.metadata
import sys
import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewPartitions, NewTopic
from kafka.errors import KafkaError

server, timeout_ms = sys.argv[1], int(sys.argv[2])
version = importlib.metadata.version("kafka-python")
topic = f"topic-{version}-{timeout_ms}"
deadline = time.monotonic() + 60
while True:  # the broker takes some seconds to start
    try:
        admin = KafkaAdminClient(bootstrap_servers=server)
        break
    except (KafkaError, OSError):
        if time.monotonic() > deadline:
            raise
        time.sleep(1)
admin.create_topics([NewTopic(topic, 2, 1)])
consumer = KafkaConsumer(
    topic, bootstrap_servers=server, group_id=topic, auto_offset_reset="earliest", metadata_max_age_ms=1000
)
read = 0


def polled(seconds, enough=lambda: False):
    global read
    until = time.monotonic() + seconds
    while time.monotonic() < until and not enough():
        read += sum(map(len, consumer.poll(timeout_ms=timeout_ms).values()))
        time.sleep(0.02)


polled(60, lambda: len(consumer.assignment()) == 2)
polled(5)
admin.create_partitions({topic: NewPartitions(4)} if version < "3" else {topic: 4})
polled(20)
producer = KafkaProducer(bootstrap_servers=server)
for number in range(40):
    producer.send(topic, b"%d" % number, partition=number % 4)
producer.flush()
polled(15)
print(f"kafka-python {version}, poll({timeout_ms}): {len(consumer.assignment())} of 4 partitions, {read} of 40 records")
PYTHON
for version in 2.3.3 3.0.12; do
  for timeout in 0 10000; do
    PYTHONPATH="$dir/$version" python3 "$dir/run.py" "127.0.0.1:$port" "$timeout" 2> "$dir/errors" | tee -a "$dir/seen"
  done
done
cat > "$dir/expected" <<'EXPECTED'
kafka-python 2.3.3, poll(0): 2 of 4 partitions, 20 of 40 records
kafka-python 2.3.3, poll(10000): 4 of 4 partitions, 40 of 40 records
kafka-python 3.0.12, poll(0): 2 of 4 partitions, 20 of 40 records
kafka-python 3.0.12, poll(10000): 4 of 4 partitions, 40 of 40 records
EXPECTED
diff "$dir/expected" "$dir/seen" && echo "as described"
