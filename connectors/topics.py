"""The topics the connector writes, and what an events record looks like to Kafka."""

from __future__ import annotations

import sys
from importlib.resources import files
from zlib import crc32

import msgspec

from schemas.events import EventsRecord
from schemas.settings import Kafka

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RECORD_TYPE = "kvlens.events.v1"
"""CloudEvents type; the topic's name may carry another prefix."""
CONTENT_TYPES = {"msgpack": b"application/msgpack", "json": b"application/json"}

Headers = list[tuple[str, bytes]]


def events_topic(settings: Kafka) -> str:
    """Return the name of the events topic."""
    return _topic(settings, "events")


def positions_topic(settings: Kafka) -> str:
    """Return the name of the positions topic."""
    return _topic(settings, "positions")


def _topic(settings: Kafka, table: str) -> str:
    topics = tomllib.loads(files("schemas").joinpath("topics.toml").read_text())
    return f"{settings.topic_prefix}.{topics[table]['name']}"


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a key, e.g. a replica's events: the same in every process and for ever."""
    return crc32(key.encode()) % partitions


def record_headers(record: EventsRecord, content_type: bytes) -> Headers:
    """Return the CloudEvents headers (Kafka protocol binding, binary mode).

    `ce_id` identifies the record: replica/rank/incarnation/first sequence number, or for a record that has
    only notices `n` and the microsecond of the first one.
    """
    source = f"{record.replica}/{record.dp_rank}"
    if record.first_seq is None:
        place = f"n{int(record.batches[0].received_at * 1e6)}"
    else:
        place = str(record.first_seq)
    return [
        ("content-type", content_type),
        ("ce_specversion", b"1.0"),
        ("ce_type", RECORD_TYPE.encode()),
        ("ce_source", source.encode()),
        ("ce_id", f"{source}/{record.incarnation}/{place}".encode()),
    ]


def record_encoder(settings: Kafka) -> msgspec.msgpack.Encoder | msgspec.json.Encoder:
    """Return the encoder for the configured record format."""
    return msgspec.json.Encoder() if settings.record_format == "json" else msgspec.msgpack.Encoder()
