"""Which columns identify a row of each table."""

from __future__ import annotations

from typing import Any

import msgspec

from schemas.fleet_rows import CapacityCurveRow, ChoiceRow, FillsRow, HotPrefixRow, RedundancyRow
from schemas.rows import EngineCountersRow, FlowRow, ObjectsRow, OccupancyRow, SourceRow, StreamHealthRow
from schemas.setting_rows import HashGroupRow

_SOURCE = ("model", "replica", "dp_rank")
_FILLS = ("window", "hash_domain", *_SOURCE, "group_idx", "shard")
KEYS: dict[type[msgspec.Struct], tuple[str, ...]] = {
    OccupancyRow: ("window", *_SOURCE, "medium", "group_idx", "block_size"),
    FlowRow: ("window", *_SOURCE, "medium", "group_idx"),
    StreamHealthRow: ("window", *_SOURCE),
    ObjectsRow: ("window", *_SOURCE, "medium", "group_idx"),
    EngineCountersRow: ("time", *_SOURCE),
    SourceRow: (*_SOURCE, "incarnation"),
    FillsRow: _FILLS,
    RedundancyRow: ("window", "hash_domain", "model", "medium", "group_idx", "shard"),
    CapacityCurveRow: _FILLS,
    HotPrefixRow: ("window", "hash_domain", "model", "group_idx", "lora", "prefix", "shard"),
    HashGroupRow: ("hash_domain", *_SOURCE, "shard"),
    ChoiceRow: ("time", "model", "replica", "request_id"),
}

SourceId = tuple[str, int]
"""Replica and data-parallel rank."""
RowKey = tuple[Any, ...]
"""Table, then the values of its key columns."""


def key_of(row: msgspec.Struct) -> RowKey:
    """Return the key that names a row among those of all tables."""
    kind = type(row)
    return (kind.TABLE, *(getattr(row, column) for column in KEYS[kind]))  # type: ignore[attr-defined]


def named(row: msgspec.Struct) -> dict[str, Any]:
    """Return the key columns of a row by name."""
    return {column: getattr(row, column) for column in KEYS[type(row)]}


def unequal(expected: msgspec.Struct, found: msgspec.Struct) -> list[str]:
    """Return the columns in which two rows of one table differ."""
    return [
        column for column in expected.__struct_fields__ if getattr(expected, column) != getattr(found, column)
    ]
