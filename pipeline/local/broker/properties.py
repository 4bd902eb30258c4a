"""The settings of the embedded broker: one node, loopback, small memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

NODE_ID = 1
MAX_MESSAGE_BYTES = 10 << 20  # topics carry records of up to 8 MB


def server_properties(data: Path, host: str, port: int, controller_port: int) -> Mapping[str, str]:
    """Return Kafka's server.properties for a node that is broker and controller in one.

    `data` holds the logs; both ports are on `host`, the controller's is for the node itself.
    """
    return {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@{host}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{host}:{port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        # Topics are created from the catalogue, with its partition counts; a typo must not create one.
        "auto.create.topics.enable": "false",
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # A single consumer need not wait for others to join its group.
        "group.initial.rebalance.delay.ms": "0",
        # After a kill -9 the controller remembers the dead process and keeps its successor out for a session.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "group.min.session.timeout.ms": "1000",
        "message.max.bytes": str(MAX_MESSAGE_BYTES),
        "replica.fetch.max.bytes": str(MAX_MESSAGE_BYTES),
        # The default dedupe buffer is 128 MB of heap, too much for our small JVM.
        "log.cleaner.dedupe.buffer.size": str(4 << 20),
        "log.cleaner.io.buffer.size": str(128 << 10),
        "log.cleaner.threads": "1",
        "num.network.threads": "2",
        "num.io.threads": "2",
        "num.replica.fetchers": "1",
        "num.recovery.threads.per.data.dir": "1",
        "background.threads": "2",
    }


def properties_text(properties: Mapping[str, str]) -> str:
    """Return Java's properties format, in which a backslash starts an escape."""
    return "".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in properties.items())
