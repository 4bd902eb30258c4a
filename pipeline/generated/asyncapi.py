"""AsyncAPI 3.0 document of the topics: channels, operations, messages, headers and keys.

Specification: https://www.asyncapi.com/docs/reference/specification/v3.0.0, Kafka bindings 0.5.0. Payloads
refer to the JSON Schema files beside the document.
"""

from __future__ import annotations

from typing import Any

import msgspec

from connectors.kafka.topics import partition_of_key
from pipeline.generated.examples.catalogue import EXAMPLES
from pipeline.generated.records import RECORDS_OF_TOPIC, Record, json_of
from pipeline.generated.source_docs import one_line
from pipeline.generated.topics_file import Topic, load_topics
from schemas.settings import Kafka

JSON_SCHEMA_FORMAT = "application/schema+json;version=draft-2020-12"
BINDING_VERSION = "0.5.0"
CONTRACT_VERSION = "1.0.0"
"""Of the topics, whose names end in v1; not of the program."""

BINDING_CONFIG = {"cleanup.policy", "retention.ms", "max.message.bytes"}
"""Broker settings that the Kafka binding has a type for; the others go to an extension."""

PARTITION_RULE = "(murmur2(key) & 0x7fffffff) % partitions"
PARTITION_EXAMPLES = [("vllm-0", 8), ("vllm-1", 8), ("vllm-0", 12)]
"""Keys, each with the number of partitions of its topic."""

Header = tuple[dict[str, Any], str]
"""JSON Schema of its text, and what it means."""
_DIGEST = {"pattern": "^[0-9a-f]{32}$"}, "Digest of the value: equal for one that was sent twice."
OWN_HEADERS: dict[str, dict[str, Header]] = {
    "events": {
        "ce_source": ({"pattern": "^.+/[0-9]+$"}, "The source: replica/dp_rank."),
        "ce_id": (
            {"pattern": "^.+/[0-9]+/[0-9]+/n?[0-9]+$"},
            "replica/dp_rank/incarnation/first_seq: equal for one that was sent twice. Without batches of "
            "the engine, `n` and microseconds instead of first_seq.",
        ),
        "ce_time": (
            {"format": "date-time"},
            "When the connector received the first batch, by its clock (RFC 3339, UTC).",
        ),
    },
    "residency": {
        "ce_source": (
            {"pattern": "^(partition|shard)/[0-9]+$"},
            "Partition of the events topic, or shard that decided.",
        ),
        "ce_id": _DIGEST,
        "ce_time": (
            {"format": "date-time"},
            "`read_to`, or the latest change where another record of the checkpoint has that; of decisions, "
            "`decided_to`.",
        ),
    },
    "choices": {
        "ce_source": ({"minLength": 1}, "The replica that was chosen."),
        "ce_id": ({"minLength": 1}, "The request: equal for one that was posted again."),
        "ce_time": ({"format": "date-time"}, "`time` of the choice."),
    },
    "set_aside": {
        "ce_source": ({"minLength": 1}, "topic/partition of the record that was set aside."),
        "ce_id": ({"minLength": 1}, "topic/partition/offset of it."),
        "ce_time": ({"format": "date-time"}, "When it was written, by the broker's clock."),
    },
    "figures": {
        "ce_source": ({"minLength": 1}, "The replica."),
        "ce_id": _DIGEST,
        "ce_time": ({"format": "date-time"}, "`window` or `time` of the row."),
    },
}
"""Headers of CloudEvents whose values depend on the record, by table of `topics.toml`."""


def asyncapi_document() -> dict[str, Any]:
    """Return the whole document, JSON-ready."""
    topics = load_topics()
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "kvlens",
            "version": CONTRACT_VERSION,
            "description": "The Kafka topics of kvlens: KV-cache events of a fleet of inference engines, "
            "and what the pipeline derives from them. Topic names carry the prefix `kafka.topic_prefix`.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/msgpack",
        "servers": {"kafka": _server()},
        "channels": {table: _channel(table, topic) for table, topic in topics.items()},
        "operations": {
            f"{table}.{action}": _operation(table, topic, action)
            for table, topic in topics.items()
            for action in ("send", "receive")
        },
        "components": {
            "messages": {
                record.__name__: _message(table, topics[table], record)
                for table, records in RECORDS_OF_TOPIC.items()
                for record in records
            }
        },
    }


def _server() -> dict[str, Any]:
    return {
        "host": "{brokers}",
        "protocol": "kafka",
        "description": "Apache Kafka, or anything that speaks its protocol and knows transactions.",
        "variables": {
            "brokers": {"default": Kafka().bootstrap_servers, "description": "`kafka.bootstrap_servers`"}
        },
    }


def _channel(table: str, topic: Topic) -> dict[str, Any]:
    typed = {key: _binding_value(key, value) for key, value in topic.config.items() if key in BINDING_CONFIG}
    other = {key: value for key, value in topic.config.items() if key not in BINDING_CONFIG}
    channel: dict[str, Any] = {
        "address": f"{{prefix}}.{topic.name}",
        "title": topic.name,
        "description": topic.description,
        "servers": [{"$ref": "#/servers/kafka"}],
        "messages": {
            record.__name__: {"$ref": f"#/components/messages/{record.__name__}"}
            for record in RECORDS_OF_TOPIC[table]
        },
        "parameters": {
            "prefix": {"default": Kafka().topic_prefix, "description": "`kafka.topic_prefix`"},
        },
        "bindings": {
            "kafka": {
                "partitions": topic.partitions,
                "topicConfiguration": typed,
                "bindingVersion": BINDING_VERSION,
            }
        },
        "x-compatibility": topic.compatibility,
    }
    if topic.keyed:
        channel["x-partition-of-key"] = {
            "rule": PARTITION_RULE,
            "examples": [
                {"key": key, "partitions": count, "partition": partition_of_key(key.encode(), count)}
                for key, count in PARTITION_EXAMPLES
            ],
        }
    if other:
        channel["x-topic-configuration"] = other
    if topic.same_partitions_as:
        channel["x-same-partitions-as"] = topic.same_partitions_as
    return channel


def _binding_value(key: str, value: str) -> list[str] | int:
    return value.split(",") if key == "cleanup.policy" else int(value)


def _operation(table: str, topic: Topic, action: str) -> dict[str, Any]:
    actors, verb = (topic.producers, "write") if action == "send" else (topic.consumers, "read")
    return {
        "action": action,
        "title": f"{verb} {topic.name}",
        "summary": f"Who {verb}s: {', '.join(actors)}.",
        "channel": {"$ref": f"#/channels/{table}"},
        "messages": [
            {"$ref": f"#/channels/{table}/messages/{record.__name__}"} for record in RECORDS_OF_TOPIC[table]
        ],
    }


def _message(table: str, topic: Topic, record: Record) -> dict[str, Any]:
    summary, _, rest = one_line(record.__doc__).partition("\n\n")
    message: dict[str, Any] = {"name": record.__name__, "title": record.__name__, "summary": summary}
    if rest:
        message["description"] = rest
    message["contentType"] = "application/json" if topic.json_only else "application/msgpack"
    if told := headers_of(table, topic):
        message["headers"] = _headers(told)
    message["payload"] = {
        "schemaFormat": JSON_SCHEMA_FORMAT,
        "schema": {"$ref": f"./{record.__name__}.schema.json"},
    }
    message["bindings"] = {
        "kafka": {"key": {"type": "string", "description": topic.key}, "bindingVersion": BINDING_VERSION}
    }
    message["examples"] = [
        {"name": name, "payload": msgspec.json.decode(json_of(example))}
        for name, example in EXAMPLES[table].items()
        if type(example) is record
    ]
    return message


def headers_of(table: str, topic: Topic) -> dict[str, Header]:
    """Return the headers of a topic's records by name: CloudEvents in Kafka's binary mode, or nothing."""
    if table not in OWN_HEADERS:
        return {}
    content_type: Header = (
        {"enum": ["application/msgpack", "application/json"]},
        "Encoding of the value (`kafka.record_format`).",
    )
    if topic.json_only:
        content_type = {"const": "application/json"}, "Encoding of the value."
    elif table == "set_aside":
        content_type = {"const": "application/msgpack"}, "Encoding of the value."
    return {
        "content-type": content_type,
        "ce_specversion": ({"const": "1.0"}, "Version of CloudEvents."),
        "ce_type": ({"const": f"kvlens.{topic.name}"}, "What the value is."),
        **OWN_HEADERS[table],
    }


def _headers(told: dict[str, Header]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(told),
        "properties": {
            name: {"type": "string", **schema, "description": meaning}
            for name, (schema, meaning) in told.items()
        },
    }
