"""Whether a row fits its table."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import msgspec

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
TABLES_END = datetime(2106, 1, 1, tzinfo=timezone.utc)


def misfits(row: msgspec.Struct) -> list[tuple[str, Any]]:
    """Return the columns of a row, with their values, that no table can hold."""
    return [(name, value) for name, value in msgspec.structs.asdict(row).items() if not _fits(value)]


def _fits(value: Any) -> bool:
    if isinstance(value, datetime):
        return EPOCH <= value <= TABLES_END
    if isinstance(value, int):
        return -1 <= value < 2**64
    if isinstance(value, list):
        return all(isinstance(item, str) or 0 <= item < 2**64 for item in value)
    return True
