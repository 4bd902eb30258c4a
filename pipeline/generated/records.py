"""The Kafka records, by topic: what the generated files describe."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from pipeline.generated.source_docs import attribute_docs
from schemas.checkpoints import PartitionMeta, PoolsRecord, SourceHead
from schemas.choices import ChoiceRecord
from schemas.events import EventsRecord
from schemas.fleet_checkpoints import FleetHead, FleetPart
from schemas.positions import PositionRecord
from schemas.residency import ResidencyRecord
from schemas.set_aside import SetAsideRecord

Record = type[msgspec.Struct]

RECORDS_OF_TOPIC: dict[str, tuple[Record, ...]] = {
    "events": (EventsRecord,),
    "positions": (PositionRecord,),
    "residency": (ResidencyRecord,),
    "choices": (ChoiceRecord,),
    "set_aside": (SetAsideRecord,),
    "checkpoints_replica": (SourceHead, PoolsRecord, PartitionMeta),
    "checkpoints_fleet": (FleetHead, FleetPart),
}
"""Table of `topics.toml` -> its records; the first is the one that `topics.toml` names."""

RECORDS: tuple[Record, ...] = tuple(record for records in RECORDS_OF_TOPIC.values() for record in records)


def field_docs(name: str) -> dict[str, str]:
    """Return {field: meaning} of the struct `name`, which some record uses.

    Raises KeyError when no module of a record defines it.
    """
    return _FIELD_DOCS[name]


def _collected() -> dict[str, dict[str, str]]:
    collected: dict[str, dict[str, str]] = {}
    for module_name in dict.fromkeys(record.__module__ for record in RECORDS):
        collected |= attribute_docs(sys.modules[module_name])
    return collected


_FIELD_DOCS = _collected()


def as_json(value: Any) -> bytes:
    """Return indented JSON with a final newline; keys keep their order."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
