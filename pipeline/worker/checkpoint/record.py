"""One record of a transaction. No IO."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Record(msgspec.Struct, frozen=True):
    """What a transaction writes in addition to offsets."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    """None: a tombstone, the key no longer has a value."""
    compressed: bool = False
    """Whether it is sent in a compressed batch, with others of its topic and partition."""
    headers: Sequence[tuple[str, bytes]] = ()
    """Of a compressed record."""
