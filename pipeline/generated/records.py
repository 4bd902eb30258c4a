"""The Kafka records, by topic: what the generated files describe."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

import schemas.fleet_rows
import schemas.pool_checkpoints
import schemas.rows
import schemas.setting_rows
from pipeline.generated.source_docs import attribute_docs
from schemas.checkpoints import BasePart, PartitionMeta, SourceBase
from schemas.choices import ChoiceRecord
from schemas.events import EventsRecord
from schemas.figures import FIGURES, TABLE_FIELD
from schemas.fleet_checkpoints import FleetHead, FleetPart
from schemas.json_form import to_json
from schemas.positions import PositionRecord
from schemas.residency import ResidencyRecord
from schemas.set_aside import SetAsideRecord

Record = type[msgspec.Struct]

RECORDS_OF_TOPIC: dict[str, tuple[Record, ...]] = {
    "events": (EventsRecord,),
    "positions": (PositionRecord,),
    "residency": (ResidencyRecord,),
    "choices": (ChoiceRecord,),
    "figures": tuple(FIGURES.values()),
    "set_aside": (SetAsideRecord,),
    "checkpoints_replica": (SourceBase, BasePart, PartitionMeta),
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
    collected = attribute_docs(schemas.pool_checkpoints)
    for module_name in dict.fromkeys(record.__module__ for record in RECORDS):
        collected |= attribute_docs(sys.modules[module_name])
    columns = attribute_docs(schemas.rows, schemas.fleet_rows, schemas.setting_rows)
    table = {TABLE_FIELD: "Table that the row is of."}
    return collected | {figure.__name__: table | columns[row.__name__] for row, figure in FIGURES.items()}


_FIELD_DOCS = _collected()


JSON_FORM = (EventsRecord, ResidencyRecord)
"""Records whose packed fields are lists in JSON (`schemas.json_form`)."""


def json_of(record: msgspec.Struct) -> bytes:
    """Return a record as it is written in JSON; one that never is, with its bytes in base64."""
    return to_json(record) if isinstance(record, JSON_FORM) else msgspec.json.encode(record)


def as_json(value: Any) -> bytes:
    """Return indented JSON with a final newline; keys keep their order."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
