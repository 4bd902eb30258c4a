"""Write MessagePack as nobody has to: numbers and lengths in more bytes than they need."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import Any

import msgspec

LONG = 8
"""Lists of more numbers are mostly written as they should be, which is a hundred times as fast."""
_INTEGERS = (
    (0xCC, 1, False),
    (0xCD, 2, False),
    (0xCE, 4, False),
    (0xCF, 8, False),
    (0xD0, 1, True),
    (0xD1, 2, True),
    (0xD2, 4, True),
    (0xD3, 8, True),
)
"""(first byte, bytes, signed)."""
_LENGTHS = {
    "text": (0xA0, 31, ((0xD9, 1), (0xDA, 2), (0xDB, 4))),
    "bytes": (None, 0, ((0xC4, 1), (0xC5, 2), (0xC6, 4))),
    "array": (0x90, 15, ((0xDC, 2), (0xDD, 4))),
    "map": (0x80, 15, ((0xDE, 2), (0xDF, 4))),
}
"""(first byte of the short form, longest of these, (first byte, bytes of the length) of the others)."""


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Bytes that stand where a value should."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Pairs:
    """A map whose keys need be neither texts nor different."""

    pairs: tuple[tuple[Any, Any], ...]


def written(value: Any, rng: random.Random, unusual: float) -> bytes:
    """Return the encoding of a value; each of its parts is of unusual width with probability `unusual`."""

    def length(kind: str, count: int) -> bytes:
        short, longest, others = _LENGTHS[kind]
        fitting = [(head, size) for head, size in others if count < 1 << 8 * size]
        if short is not None and count <= longest and rng.random() >= unusual:
            return bytes([short | count])
        head, size = rng.choice(fitting) if rng.random() < unusual else fitting[0]
        return bytes([head]) + count.to_bytes(size, "big")

    def put(value: Any) -> bytes:
        if isinstance(value, Verbatim):
            return value.content
        if value is None:
            return b"\xc0"
        if isinstance(value, bool):
            return b"\xc3" if value else b"\xc2"
        if isinstance(value, int):
            return _integer(value, rng, unusual)
        if isinstance(value, float):
            return b"\xcb" + struct.pack(">d", value)
        if isinstance(value, str):
            text = value.encode()
            return length("text", len(text)) + text
        if isinstance(value, bytes):
            return length("bytes", len(value)) + value
        if isinstance(value, list):
            if len(value) > LONG and rng.random() >= unusual and set(map(type, value)) == {int}:
                return msgspec.msgpack.encode(value)
            return length("array", len(value)) + b"".join(map(put, value))
        pairs = value.pairs if isinstance(value, Pairs) else tuple(value.items())
        return length("map", len(pairs)) + b"".join(put(part) for pair in pairs for part in pair)

    return put(value)


def _integer(value: int, rng: random.Random, unusual: float) -> bytes:
    if -32 <= value < 128 and rng.random() >= unusual:
        return struct.pack("b", value)
    fitting = [
        (head, size, signed)
        for head, size, signed in _INTEGERS
        if (-(1 << 8 * size - 1) <= value < 1 << 8 * size - 1 if signed else 0 <= value < 1 << 8 * size)
    ]
    head, size, signed = rng.choice(fitting) if rng.random() < unusual else fitting[0]
    return bytes([head]) + value.to_bytes(size, "big", signed=signed)
