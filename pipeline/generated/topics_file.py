"""`schemas/topics.toml`, checked."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOPICS_FILE = Path(__file__).parents[2] / "schemas" / "topics.toml"


class Topic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table of the file."""

    name: str
    """Without the prefix."""
    record: str
    description: str
    key: str
    producers: list[str]
    consumers: list[str]
    compatibility: str
    partitions: int
    config: dict[str, str]
    json_only: bool = False
    """Whether values are JSON whatever `kafka.record_format` says."""
    keyed: bool = False
    """Whether the hash of a record's key determines its partition; otherwise the key does not say it."""
    compression: str = "zstd"
    """The compression that is used unless `kafka.compression` is `none`."""
    same_partitions_as: str | None = None


def load_topics(path: Path = TOPICS_FILE) -> dict[str, Topic]:
    """Return the topics by table name, in the order of the file.

    Raises msgspec.ValidationError when a table has an unknown, missing or wrong key.
    """
    return msgspec.convert(tomllib.loads(path.read_text("utf-8")), dict[str, Topic])
