# Copied from schemas/wire_prefix.py by `python -m pipeline.generated`.
"""What stands before a JSON value that names its schema in a registry: 0, and the schema's id in four bytes.

It is the wire format of Confluent's serialisers, which other registries and readers share. No JSON begins
with 0, so a value says itself whether it has one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

import msgspec

_PREFIX = struct.Struct(">bI")

Decoded = TypeVar("Decoded")


def prefix(schema_id: int) -> bytes:
    """Return what stands before a value of that schema."""
    return _PREFIX.pack(0, schema_id)


def unprefixed(value: bytes) -> bytes:
    """Return the JSON of a value."""
    return value[_PREFIX.size :] if value[:1] == b"\0" else value


def json_decoder(kind: type[Decoded]) -> Callable[[bytes], Decoded]:
    """Return what decodes values of JSON. It raises what msgspec's decoder does."""
    decode = msgspec.json.Decoder(kind).decode
    return lambda value: decode(unprefixed(value))
