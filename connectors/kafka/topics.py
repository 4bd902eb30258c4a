"""The topics as `schemas/topics.toml` defines them, and what each is called in a cluster."""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Literal

import msgspec

from schemas.settings import Kafka

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_32_BITS = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Return Kafka's hash of a record's key, as an unsigned number of 32 bits (Java's is the same, signed).

    Java's client and many others choose the partition of a key by it (librdkafka by CRC-32, unless told).
    Source: `murmur2` in org.apache.kafka.common.utils.Utils of Apache Kafka, also for seed and multiplier.
    """
    hashed = _SEED ^ len(key)
    words = len(key) & ~3
    for (word,) in struct.iter_unpack("<I", key[:words]):
        word = word * _MULTIPLIER & _32_BITS
        word = (word ^ word >> 24) * _MULTIPLIER & _32_BITS
        hashed = hashed * _MULTIPLIER & _32_BITS ^ word
    if words < len(key):
        hashed = (hashed ^ int.from_bytes(key[words:], "little")) * _MULTIPLIER & _32_BITS
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _32_BITS
    return hashed ^ hashed >> 15


Compression = Literal["none", "gzip", "zstd"]


class Topic(msgspec.Struct, frozen=True):
    """What the catalogue says about a topic, as far as creation and rights need it."""

    name: str
    partitions: int
    config: Mapping[str, str]
    producers: list[str]
    consumers: list[str]
    compression: Compression = "zstd"
    """What its records are compressed with, if at all (`compression_of`)."""
    same_partitions_as: str | None = None
    """Catalogue key of the topic whose partition numbers name the same state."""

    @property
    def shared(self) -> bool:
        """Whether workers share it, so that `kafka.partitions` says how many partitions it has."""
        return self.partitions > 1

    def partitions_for(self, kafka: Kafka) -> int:
        """Return how many partitions it is made with."""
        return kafka.partitions if self.shared else self.partitions


@lru_cache(maxsize=1)
def catalogue() -> Mapping[str, Topic]:
    """Return the topics by their key in `topics.toml`."""
    text = files("schemas").joinpath("topics.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, Topic])


def topic_name(kafka: Kafka, key: str) -> str:
    """Return the name in the cluster of the topic `key` of the catalogue."""
    return f"{kafka.topic_prefix}.{catalogue()[key].name}"


def compression_of(kafka: Kafka, key: str) -> Compression:
    """Return what records of the topic `key` of the catalogue are compressed with."""
    return "none" if kafka.compression == "none" else catalogue()[key].compression


@lru_cache(maxsize=16_384)
def partition_of(replica: str, partitions: int) -> int:
    """Return the partition of a replica's events: the same in every process, for ever."""
    return partition_of_key(replica.encode(), partitions)


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of a record with this key, as Kafka's Java client chooses it by default."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
