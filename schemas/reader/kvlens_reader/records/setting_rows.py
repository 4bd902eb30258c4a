# Copied from schemas/setting_rows.py by `python -m pipeline.generated`.
"""Rows that say what figures rest on: what models are called, what their prefill costs, what was set."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec


class HashGroupRow(msgspec.Struct, frozen=True, gc=False):
    """Sources that hash like this one, as far as one shard of the hash space shows."""

    TABLE: ClassVar[str] = "hash_groups"

    hash_domain: str
    model: str
    replica: str
    dp_rank: int
    shard: int
    incarnation: int
    hash_group: str
    """Sources with the same value are proven to hash alike; their first session seen, as
    replica/rank@incarnation."""
    alike: int
    """Other sources of the group."""
    alone: bool
    """Shares no block with any other, though traffic of both keeps coming back to first blocks."""
    version: int
    """Offset of the last record applied."""


class ModelRow(msgspec.Struct, frozen=True, gc=False):
    """Settings of a model."""

    TABLE: ClassVar[str] = "models"

    model: str
    kv_bytes_per_token: int
    """KV-cache bytes of one token, all layers and groups; 0 when not configured."""
    version: int
    """When the worker that wrote it started (ms since the epoch)."""


class PrefillSettingsRow(msgspec.Struct, frozen=True, gc=False):
    """What the settings say of a model's prefill, from a time on. Unchanged settings add no row."""

    TABLE: ClassVar[str] = "prefill_settings"

    model: str
    since: datetime
    """When the first worker with these settings started."""
    prefill_tokens_per_second: float | None
    """Prompt tokens that a replica computes in a second; NULL: not configured."""
    gpus_per_replica: float | None
    """GPUs of a replica, all its ranks together; NULL: not configured."""
    gpu_hour_price: float | None
    """Price of an hour of one GPU; NULL: not configured."""
    currency: str
    """Of the price."""
    version: int
    """When the worker that wrote it started (ms since the epoch)."""


class PrefixNameRow(msgspec.Struct, frozen=True, gc=False):
    """What the settings call a hot prefix."""

    TABLE: ClassVar[str] = "prefix_names"

    first_block: str
    """Hash of its first block; empty in the row that every version has."""
    name: str
    """Empty in the row that every version has."""
    version: int
    """When the worker that wrote it started (ms since the epoch)."""


class FleetSettingRow(msgspec.Struct, frozen=True, gc=False):
    """A setting that decides what figures of the fleet mean."""

    TABLE: ClassVar[str] = "fleet_settings"

    name: str
    """`horizon_seconds`: `fleet.horizon_seconds`."""
    value: float
    """In the unit that its name has."""
    version: int
    """When the worker that wrote it started (ms since the epoch)."""
