"""Block hashes as records carry them, written apart from the product."""

from __future__ import annotations


def packed(*hashes: int) -> bytes:
    """Return hashes one behind the other, eight bytes each, the highest first; -1 is 2^64 - 1."""
    return b"".join((block % 2**64).to_bytes(8, "big") for block in hashes)
