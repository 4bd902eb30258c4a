"""One record of a transaction. No IO."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Record(msgspec.Struct, frozen=True):
    """What a transaction writes besides offsets."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    """None: the key has no value any more."""
    compressed: bool = False
    """Compressed where records are, in batches with others of its kind and partition."""
    headers: Sequence[tuple[str, bytes]] = ()
    """Of a compressed record."""
