# /// script
# requires-python = ">=3.10"
# dependencies = ["confluent-kafka[json,schemaregistry]==2.16.1"]
# ///
"""Decode values (a topic and hexadecimal digits a line) with Confluent's client, which checks them."""

from __future__ import annotations

import json
import sys

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

deserializer = JSONDeserializer(None, schema_registry_client=SchemaRegistryClient({"url": sys.argv[1]}))
for line in sys.stdin:
    topic, digits = line.split()
    decoded = deserializer(bytes.fromhex(digits), SerializationContext(topic, MessageField.VALUE))
    sys.stdout.write(json.dumps(decoded) + "\n")
