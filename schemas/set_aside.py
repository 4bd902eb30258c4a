"""Records of `kvlens.set.aside.v1`: what a worker met in a topic that it reads and could not apply.

Every such record is here once, with the reason, and with its bytes as far as they are few enough. Its key is
that of the record.
"""

from __future__ import annotations

import msgspec

KEPT_BYTES = 64 << 10
"""Bytes of a record that are kept at most."""


class SetAsideRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """A record that was left out of the state, and why."""

    topic: str
    """Topic that it is in."""
    partition: int
    """Partition there."""
    offset: int
    """Offset there; topic, partition and offset name the record for ever."""
    reason: str
    """Bounded: see `schemas.reasons.SetAsideReason`."""
    detail: str
    """What exactly was wrong, for people; at most 200 characters."""
    written_at: float
    """When the record was written, as the broker has it, seconds since the epoch."""
    length: int
    """Bytes of its value."""
    value: bytes = b""
    """The value, or its beginning; empty where a checkpoint had too many of them already."""
    replica: str | None = None
    """Replica of the first source that the record names; None if it names none that can be read."""
    dp_rank: int | None = None
    """Data-parallel rank of that source; None if it cannot be read."""
    sources: int = 0
    """How many sources the record names."""
