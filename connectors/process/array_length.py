"""How long an array of MessagePack is, before it is decoded."""

from __future__ import annotations

from msgspec import Raw


def array_length(raw: Raw | bytes) -> int:
    """Return how many elements an undecoded array says it has; 0 if it is no array."""
    head = bytes(memoryview(raw)[:5])
    if head[0] & 0xF0 == 0x90:
        return head[0] & 0x0F
    if head[0] == 0xDC:
        return int.from_bytes(head[1:3], "big")
    return int.from_bytes(head[1:], "big") if head[0] == 0xDD else 0
