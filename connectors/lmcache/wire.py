"""Cache events as LMCache's servers send them, as of 0.5.6: `lmcache/v1/mp_coordinator/{api,schemas}.py`.

A Kafka record or the body of a request is JSON, `{"batches": [...]}`. Fields that are not here are skipped.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Raw

from schemas.events import LATEST, Total

MOST_OBJECT_GROUPS = 8
MOST_WORKERS = 127
"""Of one engine, tensor and pipeline parallel ones together; LMCache's own bound is 255. With all object
groups that makes fewer groups than a record has numbers for."""


ServerId = Annotated[str, Meta(min_length=1, max_length=200)]


class Registration(msgspec.Struct, gc=False):
    """What a server says when it starts."""

    instance_id: ServerId


class Report(msgspec.Struct, gc=False):
    """One record or request, decoded only as far as where its batches begin and end."""

    batches: list[Raw] = []


class ObjectKey(msgspec.Struct, gc=False):
    """Which object: a chunk of tokens, as one worker of an engine has it."""

    chunk_hash_hex: Annotated[str, Meta(max_length=256)]
    model_name: str
    kv_rank: Annotated[int, Meta(ge=0, lt=1 << 32)]
    """Four bytes: workers of the engine, number of this one, workers on its host, number there."""
    object_group_id: Annotated[int, Meta(ge=0, lt=1 << 32)] = 0
    cache_salt: Annotated[str, Meta(max_length=1024)] = ""


class Entry(msgspec.Struct, gc=False):
    """One object that a batch is about."""

    key: ObjectKey
    size_bytes: Total = 0
    token_ids: list[int] = []
    """Only how many there are is ever looked at."""


class CacheBatch(msgspec.Struct, gc=False):
    """A batch of one kind of event, numbered by its server."""

    instance_id: ServerId
    incarnation: Annotated[int, Meta(ge=1, le=LATEST)]
    """Second since the epoch at which the server started."""
    seq: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    """From 1 in each incarnation."""
    event_type: Annotated[str, Meta(max_length=1024)]
    tier: Annotated[str, Meta(max_length=1024)]
    backend: Annotated[str, Meta(max_length=1024)] = ""
    """Storage within the tier; empty where the first tier was accessed."""
    entries: list[Entry] = []
    shared: bool = False
    """Whether several servers mount the same storage, or map the same memory (after 0.5.6)."""
    ts: Annotated[float, Meta(ge=0, le=LATEST)] = 0.0
    """Clock of the server, 0 if it does not say."""
    capacity_bytes: Total = 0
    capacity_revision: Total = 0
    """Which declaration of capacities this batch is of; a newer one replaces those before."""


decode_report = msgspec.json.Decoder(Report).decode
"""Raises msgspec.DecodeError, UnicodeDecodeError, RecursionError."""
decode_batch = msgspec.json.Decoder(CacheBatch).decode
"""Raises the same."""
decode_registration = msgspec.json.Decoder(Registration).decode
"""Raises the same."""
