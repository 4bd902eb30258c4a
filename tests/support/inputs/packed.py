"""Block hashes as records carry them, written apart from the product."""

from __future__ import annotations


def packed(*hashes: int) -> bytes:
    """Return hashes one behind the other, eight bytes each, the highest first."""
    return b"".join(block.to_bytes(8, "big") for block in hashes)
