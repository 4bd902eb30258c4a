"""What a record says, spelled out: every field with its name, defaults included."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


def meaning_of(value: Any) -> Any:
    """Return JSON-ready data: structs as maps with their type's name, byte strings in hexadecimal.

    Two records mean the same when this is equal, however they were encoded.
    """
    match value:
        case msgspec.Struct():
            fields = {name: meaning_of(getattr(value, name)) for name in value.__struct_fields__}
            return {"struct": type(value).__name__, **fields}
        case list() | tuple():
            return [meaning_of(item) for item in value]
        case dict():
            return {str(key): meaning_of(item) for key, item in value.items()}
        case bytes():
            return value.hex()
        case datetime():
            return value.isoformat()
        case _:
            return value
