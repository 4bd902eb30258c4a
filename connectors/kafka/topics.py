"""The topics as `schemas/topics.toml` defines them, and what each is called in a cluster."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from zlib import crc32

import msgspec

from schemas.settings import Kafka

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Topic(msgspec.Struct, frozen=True):
    """What the catalogue says about a topic, as far as creation and rights need it."""

    name: str
    partitions: int
    config: Mapping[str, str]
    producers: list[str]
    consumers: list[str]
    same_partitions_as: str | None = None
    """Catalogue key of the topic whose partition numbers name the same state."""


@lru_cache(maxsize=1)
def catalogue() -> Mapping[str, Topic]:
    """Return the topics by their key in `topics.toml`."""
    text = files("schemas").joinpath("topics.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, Topic])


def topic_name(kafka: Kafka, key: str) -> str:
    """Return the name in the cluster of the topic `key` of the catalogue."""
    return f"{kafka.topic_prefix}.{catalogue()[key].name}"


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a key, e.g. a replica's events: the same in every process and for ever."""
    return crc32(key.encode()) % partitions
